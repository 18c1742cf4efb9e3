package arch_test

import "regexp"

// personWords are the words of a comment that speaks of a caller, a worker, a process or a
// connection as if it were a person. The thing has a name.
var personWords = regexp.MustCompile(`(?i)\b(who|whom|whose|somebody|nobody|whoever|anybody|everybody)\b`)

func wordFaults(s source) (faults []string) {
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if word := personWords.FindString(c.Text); word != "" {
				faults = append(faults, "says "+word+": "+c.Text)
			}
		}
	}
	return faults
}
