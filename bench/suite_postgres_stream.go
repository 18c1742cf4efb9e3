package main

// postgresEvents is the number of events to replay on a server.
const postgresEvents = 200_000

// postgresStreamSuite measures streams and claims by calls of their own on a server, with the cases of files.
func postgresStreamSuite() Suite {
	cases := append(streamCases(Synchronous, "200,000", postgresEvents), pullCases(Synchronous)...)
	return Suite{Name: "postgres-streams", Contestants: postgresStreamContestants, Cases: cases}
}

// postgresStreamContestants returns the driver and honker, because River has no streams and no claims by calls.
func postgresStreamContestants() []Contestant {
	if postgresVersion() == "" {
		return nil
	}
	return []Contestant{rawPostgres(), honkerPostgres()}
}
