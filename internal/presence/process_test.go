//go:build linux || darwin

package presence_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/presence"
	"github.com/honker-go/honker/internal/row"
)

// this returns the identity of this process, as recorded by a register.
func this(t *testing.T) row.Process {
	t.Helper()
	var put []row.Worker
	r := presence.NewRegister(nil, time.Now, func() {})
	defer r.Enter("w", []string{"jobs"}, 1)()
	require.True(t, r.Take(true))
	put = presence.Put(r)
	r.Done(engine.PiggybackFailed)
	r.Close()
	require.Len(t, put, 1)
	return put[0].Process
}

// The state of a process is determined by its boot, PID namespace, ID and start time.
func TestLifeOf(t *testing.T) {
	me := this(t)
	require.EqualValues(t, os.Getpid(), me.PID)
	require.NotEmpty(t, me.Boot)
	require.NotZero(t, me.Start)
	with := func(change func(*row.Process)) row.Process {
		p := me
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		want presence.Life
		of   row.Process
	}{
		"itself":               {presence.Alive, me},
		"host renamed":         {presence.Alive, with(func(p *row.Process) { p.Host = "another" })},
		"before a boot":        {presence.Gone, with(func(p *row.Process) { p.Boot = "another" })},
		"id given again":       {presence.Gone, with(func(p *row.Process) { p.Start-- })},
		"in another space":     {presence.Unknown, with(func(p *row.Process) { p.Space = "another" })},
		"nothing known":        {presence.Unknown, row.Process{Host: me.Host, PID: me.PID}},
		"an id that is none":   {presence.Unknown, with(func(p *row.Process) { p.PID = 0 })},
		"a group of processes": {presence.Unknown, with(func(p *row.Process) { p.PID = -1 })},
		"no such id":           {presence.Gone, with(func(p *row.Process) { p.PID = 1 << 30 })},
	} {
		require.Equal(t, c.want, presence.LifeOf(c.of), name)
	}
}

// A killed process is gone, even before its parent has waited for it.
func TestLifeOf_Killed(t *testing.T) {
	child := exec.Command("sleep", "600")
	require.NoError(t, child.Start())
	p := this(t)
	p.PID = int64(child.Process.Pid)
	start, running := presence.StartOf(child.Process.Pid)
	require.True(t, running)
	p.Start = start
	require.Equal(t, presence.Alive, presence.LifeOf(p))
	require.NoError(t, child.Process.Kill())
	require.Eventually(t, func() bool { return presence.LifeOf(p) == presence.Gone }, time.Minute, time.Millisecond)
	require.Error(t, child.Wait())
	require.Equal(t, presence.Gone, presence.LifeOf(p))
}
