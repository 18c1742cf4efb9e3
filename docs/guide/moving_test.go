package guide_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The pages for users of other queues show a program beside its port. Both print the same lines.
// TestGuide_Programs compares the lines of each with its output.
func TestGuide_PortsPrintTheSame(t *testing.T) {
	t.Parallel()
	for page, other := range map[string]string{"from-river.md": "riverqueue", "from-table.md": "SELECT id, kind"} {
		blocks := blocksOf(t, filepath.Join("docs", "guide", page))
		require.True(t, blocks[0].isProgram() && blocks[1].isProgram(), "%s begins with two programs", page)
		require.Contains(t, blocks[0].code, other, page)
		require.NotContains(t, blocks[1].code, other, page)
		require.NotEmpty(t, blocks[0].prints, page)
		require.Equal(t, blocks[0].prints, blocks[1].prints, page)
	}
}

// Jobs of River, messages of goqite and jobs of honker are enqueued in the same transaction. Then the
// fragments of the pages move the waiting jobs of River and goqite to honker.
func TestGuide_WaitingJobsMove(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	t.Parallel()
	program := strings.NewReplacer(
		"// from River", fragmentWith(t, "from-river.md", "FROM river_job"),
		"// from goqite", fragmentWith(t, "from-table.md", "FROM goqite"),
	).Replace(moving)
	dir := newModule(t, "bench")
	write(t, filepath.Join(dir, "moving", "main.go"), program)
	run(t, dir, anyModule, "go", "build", "-ldflags=-s -w", "-o", "program", "./moving")
	require.Equal(t, `rolled back: River 0, goqite 0, honker 0
committed: River 1, goqite 1, honker 1
moved: River 0, goqite 0, honker 3
mail to ann, attempts left 24
mail to bob, attempts left 24
mail to eve, attempts left 24
`, run(t, dir, nil, "./program"))
}

// fragmentWith returns the only Go block of a page that contains text.
func fragmentWith(t *testing.T, page, text string) (code string) {
	for _, b := range blocksOf(t, filepath.Join("docs", "guide", page)) {
		if !b.isProgram() && strings.Contains(b.code, text) {
			require.Empty(t, code, "%s has two fragments with %q", page, text)
			code = b.code
		}
	}
	require.NotEmpty(t, code, "%s has no fragment with %q", page, text)
	return code
}

// moving is the program around the fragments. Its goqite table is schema_sqlite.sql of goqite.
const moving = `package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/honker-go/honker"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"maragu.dev/goqite"
)

type Mail struct{ To string }

func (Mail) Kind() string { return "mail" }

const goqiteTable = ` + "`" + `create table goqite (
  id text primary key default ('m_' || lower(hex(randomblob(16)))),
  created text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  updated text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  queue text not null, body blob not null,
  timeout text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  received integer not null default 0, priority integer not null default 0) strict` + "`" + `

func main() {
	ctx := context.Background()
	db, err := honker.Open(ctx, "moving.db", nil)
	check(err)
	_, err = db.SQL().ExecContext(ctx, goqiteTable)
	check(err)
	driver := riversqlite.New(db.SQL())
	migrator, err := rivermigrate.New(driver, nil)
	check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	check(err)
	client, err := river.NewClient(driver, &river.Config{})
	check(err)
	messages := goqite.New(goqite.NewOpts{DB: db.SQL(), Name: "mails"})
	mail, mails := honker.NewQueue[Mail](db, "mail", nil), honker.NewQueue[Mail](db, "mails", nil)

	count := func(when string) {
		var ofRiver, ofGoqite int
		check(db.SQL().QueryRowContext(ctx, "SELECT count(*) FROM river_job").Scan(&ofRiver))
		check(db.SQL().QueryRowContext(ctx, "SELECT count(*) FROM goqite").Scan(&ofGoqite))
		a, err := mail.Stats(ctx)
		check(err)
		b, err := mails.Stats(ctx)
		check(err)
		fmt.Printf("%s: River %d, goqite %d, honker %d\n", when, ofRiver, ofGoqite, a.Ready.N+b.Ready.N)
	}
	enqueue := func(end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := client.InsertTx(ctx, tx, Mail{"ann"}, nil)
			check(err)
			check(messages.SendTx(ctx, tx, goqite.Message{Body: []byte("{\"To\":\"bob\"}"), Priority: 1}))
			_, err = mails.EnqueueTx(ctx, tx, Mail{"eve"})
			check(err)
			return end
		})
	}
	refused := errors.New("refused")
	if err := enqueue(refused); !errors.Is(err, refused) {
		log.Fatal(err)
	}
	count("rolled back")
	check(enqueue(nil))
	count("committed")
	check(func() error {
		// from River
		return err
	}())
	check(func() error {
		// from goqite
		return err
	}())
	count("moved")

	workers := honker.NewWorkers(db, nil)
	print := func(ctx context.Context, job *honker.Job[Mail]) error {
		fmt.Printf("mail to %s, attempts left %d\n", job.Args.To, job.MaxAttempts-job.Attempts)
		return nil
	}
	honker.Handle(workers, mail, print)
	honker.Handle(workers, mails, print)
	_, err = workers.WorkDue(ctx, nil)
	check(err)
	check(db.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
`
