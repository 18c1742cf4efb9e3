package model_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkertest"
)

// A program is a function of package flow as data. Times are counted from the start of its root. Sleeps last whole
// units, signals are sent half a unit later, and cancellations shortly before the next unit. Waits last a little longer
// than whole units. So no two of them coincide, although retries take some seconds.
type program struct {
	ops      []op
	attempts int // MaxAttempts
	signals  []sent
	cancelAt time.Duration // 0: never
}

const (
	timeUnit   = 10 * time.Minute
	halfUnit   = timeUnit / 2
	waitExcess = 5 * time.Second

	childAttempts = 25 // the default
)

// sent is a signal to a run, sent once or twice.
type sent struct {
	name  string
	at    time.Duration
	twice bool
}

// op is a statement of a program. Its name is unique in the program.
type op struct {
	kind     opKind
	name     string
	fails    int           // how often a step or an undo fails before it succeeds
	d        time.Duration // of a sleep or a wait; 0: a wait without a limit
	child    *program      // of a call
	tolerant bool          // ignores the error of the call, or the suspension of the sleep
	fanOut   []op          // steps of goroutines
}

type opKind string

const (
	opStep   opKind = "step"
	opStepTx opKind = "transactional step"
	opSleep  opKind = "sleep"
	opWait   opKind = "wait"
	opCall   opKind = "call"
	opUndo   opKind = "undo"
	opReject opKind = "reject"
	opFanOut opKind = "fan out"
	opLapse  opKind = "lapse" // the run's process loses the claim, and does not notice
)

// drawProgram draws a program with the given number of attempts. Its children are nested at most depth times.
func drawProgram(t *rapid.T, attempts, depth int) *program {
	p := &program{attempts: attempts}
	kinds := []opKind{opStep, opStep, opStepTx, opStepTx, opSleep, opWait, opWait, opUndo, opUndo, opFanOut, opReject}
	if depth > 0 {
		kinds = append(kinds, opCall, opCall)
	}
	if attempts >= childAttempts { // so many that the lapses do not spend them
		kinds = append(kinds, opLapse)
	}
	at := func(label string) time.Duration {
		return time.Duration(rapid.IntRange(0, 12).Draw(t, label)) * timeUnit
	}
	for i := range rapid.IntRange(1, 8).Draw(t, "ops") {
		o := op{kind: rapid.SampledFrom(kinds).Draw(t, "kind"), name: fmt.Sprint("op", i)}
		switch o.kind {
		case opStep, opStepTx, opUndo:
			o.fails = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "fails")
		case opSleep:
			o.d = rapid.SampledFrom([]time.Duration{0, time.Second, timeUnit, 3 * timeUnit}).Draw(t, "sleep")
			o.tolerant = rapid.Bool().Draw(t, "ignore the suspension")
		case opWait:
			p.drawWait(t, &o, at)
		case opCall:
			o.child, o.tolerant = drawProgram(t, childAttempts, depth-1), rapid.Bool().Draw(t, "ignore the failure")
		case opFanOut:
			for j := range 3 {
				o.fanOut = append(o.fanOut, op{kind: opStep, name: fmt.Sprintf("op%d-%d", i, j), fails: rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "fails")})
			}
		case opReject:
			if !rapid.Bool().Draw(t, "really") {
				o.kind = opStep
			}
		}
		p.ops = append(p.ops, o)
	}
	return p
}

// drawWait draws a wait and its signal, which comes before or during the wait, after it, or never.
func (p *program) drawWait(t *rapid.T, o *op, at func(string) time.Duration) {
	if rapid.Bool().Draw(t, "bounded") {
		o.d = time.Duration(rapid.IntRange(1, 6).Draw(t, "within"))*timeUnit + waitExcess
	}
	if o.d == 0 || rapid.IntRange(0, 3).Draw(t, "signal?") > 0 {
		p.signals = append(p.signals, sent{name: o.name, at: at("signal at") + halfUnit, twice: rapid.Bool().Draw(t, "twice")})
	}
}

// fate is the predicted course of a run.
type fate struct {
	trace     []string // result of the function
	effects   []string // transactional steps that were committed
	undone    []string
	failure   string // of a run that has failed
	cancelled bool
	begin     time.Duration
	end       time.Duration
	signals   []sent
}

// interpreter predicts the fate of a run.
type interpreter struct {
	*program
	*fate
	id    string
	spent int // attempts
	undos []op
	met   map[string]int
	all   map[string]*fate // of all runs
}

// predict records the fates of a run that starts at begin, and of the runs that it calls.
func predict(id string, p *program, begin time.Duration, met map[string]int, all map[string]*fate) *fate {
	in := &interpreter{program: p, fate: &fate{begin: begin, end: begin}, id: id, met: met, all: all}
	for _, s := range p.signals { // a run that does not exist takes no signals
		s.at = max(s.at, (begin+halfUnit).Truncate(timeUnit)+halfUnit)
		in.fate.signals = append(in.fate.signals, s)
	}
	for _, o := range p.ops {
		if !in.step(o) {
			break
		}
	}
	met["ended: "+in.how()]++
	all[id] = in.fate
	return in.fate
}

func (in *interpreter) how() string {
	switch {
	case in.cancelled:
		return "cancelled"
	case in.failure != "":
		return "failed"
	}
	return "done"
}

func (in *interpreter) see(format string, args ...any) {
	in.trace = append(in.trace, fmt.Sprintf(format, args...))
}

// step interprets an operation, and returns whether the run goes on.
func (in *interpreter) step(o op) bool {
	in.met[string(o.kind)]++
	switch o.kind {
	case opStep, opStepTx:
		if !in.try(o) {
			return false
		}
		in.see("%s", o.name)
		if o.kind == opStepTx {
			in.effects = append(in.effects, o.name)
		}
	case opFanOut:
		worst := slices.MaxFunc(o.fanOut, func(a, b op) int { return a.fails - b.fails })
		if !in.try(worst) {
			return false
		}
		in.see("%s", o.name)
	case opSleep:
		return in.until(in.end + o.d)
	case opWait:
		return in.wait(o)
	case opUndo:
		in.undos = append(in.undos, o)
	case opReject:
		return in.fail(o.name + " rejects")
	case opCall:
		return in.call(o)
	}
	return true
}

// try spends an attempt for each failure of a step.
func (in *interpreter) try(o op) bool {
	in.spent += o.fails
	if in.spent >= in.attempts {
		return in.fail(o.name + " fails")
	}
	return true
}

func (in *interpreter) fail(failure string) bool {
	in.failure = failure
	return in.over()
}

// over ends the run with its undos.
func (in *interpreter) over() bool {
	for _, u := range slices.Backward(in.undos) {
		in.undone = append(in.undone, u.name)
		in.met["undone"]++
	}
	return false
}

// until suspends the run until t, or until it is cancelled.
func (in *interpreter) until(t time.Duration) bool {
	if in.cancelAt > 0 && in.cancelAt < t {
		in.end, in.cancelled = in.cancelAt, true
		return in.over()
	}
	in.end = t
	return true
}

func (in *interpreter) wait(o op) bool {
	deadline := in.end + o.d
	i := slices.IndexFunc(in.fate.signals, func(s sent) bool { return s.name == o.name })
	switch {
	case i >= 0 && in.fate.signals[i].at <= in.end:
		in.met["early signal"]++
	case i >= 0 && (o.d == 0 || in.fate.signals[i].at < deadline):
		if !in.until(in.fate.signals[i].at) {
			return false
		}
		in.met["late signal"]++
	default:
		if !in.until(deadline) {
			return false
		}
		in.met["timeout"]++
		in.see("%s timeout", o.name)
		return true
	}
	in.see("%s signalled", o.name)
	return true
}

func (in *interpreter) call(o op) bool {
	child := predict(in.id+"/"+o.name, o.child, in.end, in.met, in.all)
	if !in.until(child.end) {
		return false
	}
	switch {
	case child.failure == "":
		in.see("%s returned %d", o.name, len(child.trace))
	case o.tolerant:
		in.see("%s failed", o.name)
	default:
		return in.fail(o.name + " has failed")
	}
	return true
}

// players runs programs as flows, and records their calls.
type players struct {
	t    *testing.T
	db   *honker.DB
	flow *flow.Flow[int, []string]

	mu    sync.Mutex
	runs  map[string]*player // by ID
	wrong []string
}

// player is the state of a run that its attempts share.
type player struct {
	*program
	ran       map[string]int // calls of the functions of steps and undos
	committed map[string]bool
	undone    []string
	lapsed    bool
}

func (ps *players) of(id string) *player {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.runs[id]
}

// add prepares the runs of p and of its children.
func (ps *players) add(id string, p *program) {
	ps.runs[id] = &player{program: p, ran: map[string]int{}, committed: map[string]bool{}}
	for _, o := range p.ops {
		if o.child != nil {
			ps.add(id+"/"+o.name, o.child)
		}
	}
}

var errOp = errors.New("fails")

// count counts a call of the function of o, and returns the error of the calls that fail.
func (ps *players) count(pl *player, o op) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if pl.committed[o.name] && !pl.lapsed { // a process that has lost its claim may not know it yet
		ps.wrong = append(ps.wrong, o.name+" runs although its result was committed")
	}
	if pl.ran[o.name]++; pl.ran[o.name] <= o.fails {
		return fmt.Errorf("%s %w", o.name, errOp)
	}
	return nil
}

func (ps *players) commit(pl *player, o op) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	pl.committed[o.name] = true
}

// play is the function of the flow.
func (ps *players) play(ctx context.Context, _ int) (trace []string, err error) {
	pl := ps.of(flow.ID(ctx))
	for _, o := range pl.ops {
		text, err := ps.perform(ctx, pl, o)
		if err != nil {
			return nil, err
		}
		if text != "" {
			trace = append(trace, text)
		}
	}
	return trace, nil
}

func (ps *players) perform(ctx context.Context, pl *player, o op) (string, error) {
	switch o.kind {
	case opStep:
		return o.name, ps.step(ctx, pl, o)
	case opStepTx:
		_, err := flow.StepTx(ctx, o.name, func(ctx context.Context, tx *sql.Tx) (string, error) {
			if _, err := tx.ExecContext(ctx, `INSERT INTO model_effects (run, name) VALUES ($1, $2)`, flow.ID(ctx), o.name); err != nil {
				return "", err
			}
			return o.name, ps.count(pl, o)
		})
		if err == nil {
			ps.commit(pl, o)
		}
		return o.name, err
	case opFanOut:
		errs := make(chan error, len(o.fanOut))
		for _, s := range o.fanOut {
			go func() { errs <- ps.step(ctx, pl, s) }()
		}
		return o.name, errors.Join(<-errs, <-errs, <-errs)
	case opSleep:
		if err := flow.Sleep(ctx, o.name, o.d); err != nil && !o.tolerant {
			return "", err
		}
	case opWait:
		v, err := flow.Wait[string](ctx, o.name, o.d)
		if errors.Is(err, flow.ErrTimeout) {
			return o.name + " timeout", nil
		}
		return v, err
	case opUndo:
		flow.Undo(ctx, o.name, func(context.Context) error {
			if err := ps.count(pl, o); err != nil {
				return err
			}
			ps.mu.Lock()
			defer ps.mu.Unlock()
			pl.undone = append(pl.undone, o.name)
			return nil
		})
	case opReject:
		return "", honker.Reject(errors.New(o.name + " rejects"))
	case opCall:
		return ps.call(ctx, o)
	case opLapse:
		ps.lapse(ctx, pl)
	}
	return "", nil
}

func (ps *players) step(ctx context.Context, pl *player, o op) error {
	_, err := flow.Step(ctx, o.name, func(context.Context) (string, error) { return o.name, ps.count(pl, o) })
	if err == nil {
		ps.commit(pl, o)
	}
	return err
}

func (ps *players) call(ctx context.Context, o op) (string, error) {
	out, err := flow.Call(ctx, o.name, ps.flow, 0)
	var failed *flow.FailedError
	switch {
	case !errors.As(err, &failed):
		return fmt.Sprintf("%s returned %d", o.name, len(out)), err
	case o.tolerant:
		return o.name + " failed", nil
	}
	return "", honker.Reject(errors.New(o.name + " has failed"))
}

// lapse lets the claim of the run lapse in the middle of its attempt, once in each run.
func (ps *players) lapse(ctx context.Context, pl *player) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if pl.lapsed {
		return
	}
	pl.lapsed = true
	honkertest.Lapse(ps.t, ps.db, jobOf(ctx))
}

// jobOf returns the job of a run, which is a part of its idempotency keys.
func jobOf(ctx context.Context) int64 {
	id, err := strconv.ParseInt(strings.Split(flow.Key(ctx, ""), "/")[1], 10, 64)
	if err != nil {
		panic(err)
	}
	return id
}

// drive signals and cancels the runs of the fates, and returns the unexpected answers.
func (ps *players) drive(root string, p *program, all map[string]*fate) (wrong []string) {
	type event struct {
		at time.Duration
		do func() string
	}
	var events []event
	for id, f := range all {
		for _, s := range f.signals {
			events = append(events, event{s.at, func() string { return ps.signal(id, s, f) }})
		}
	}
	if p.cancelAt > 0 {
		events = append(events, event{p.cancelAt, func() string {
			got, err := ps.flow.Cancel(context.Background(), root)
			return differ("cancel "+root, err == nil && got, all[root].cancelled)
		}})
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	began := time.Now()
	for _, e := range events {
		time.Sleep(time.Until(began.Add(e.at)))
		if text := e.do(); text != "" {
			wrong = append(wrong, text)
		}
	}
	return wrong
}

func differ(what string, got, want any) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("%s: got %v, want %v", what, got, want)
}

// signal signals a run. The run may end at that very moment, because of another signal.
func (ps *players) signal(id string, s sent, f *fate) string {
	err := flow.Signal(context.Background(), ps.db, "model", id, s.name, s.name+" signalled")
	again := fmt.Errorf("not sent: %w", flow.ErrSignalled)
	if s.twice {
		again = flow.Signal(context.Background(), ps.db, "model", id, s.name, "again")
	}
	what := fmt.Sprintf("signal %s of %s at %v", s.name, id, s.at)
	switch {
	case f.failure != "" || s.at < f.end:
		if err != nil {
			return fmt.Sprint(what, ": ", err)
		}
	case s.at > f.end && !errors.Is(err, honker.ErrNotFound):
		return fmt.Sprint(what, ": ", err)
	}
	if !errors.Is(again, flow.ErrSignalled) && !errors.Is(again, honker.ErrNotFound) {
		return fmt.Sprint(what, " again: ", again)
	}
	return ""
}

// check compares a run with its fate.
func (ps *players) check(t *rapid.T, id string, f *fate) {
	out, err := ps.flow.Result(context.Background(), id)
	pl := ps.of(id)
	var failed *flow.FailedError
	switch {
	case f.cancelled:
		require.ErrorIs(t, err, honker.ErrCancelled, id)
	case f.failure != "":
		require.ErrorAs(t, err, &failed, id)
		require.Contains(t, failed.LastError, f.failure, id)
	default:
		require.NoError(t, err, id)
		require.Equal(t, f.trace, out, id)
	}
	require.ElementsMatch(t, f.effects, column[string](t, ps.db, `SELECT name FROM model_effects WHERE run = '`+id+`'`), id)
	require.Equal(t, f.undone, slices.Compact(slices.Clone(pl.undone)), id)
	for _, o := range pl.ops {
		if !pl.lapsed {
			require.LessOrEqual(t, pl.ran[o.name], o.fails+1, "%s %s", id, o.name)
		}
	}
}

// checkProgram compares a run of a random program, and the runs that it calls, with their fates.
func (ps *players) checkProgram(t *rapid.T, id string, met map[string]int) {
	p := drawProgram(t, rapid.SampledFrom([]int{3, 1000}).Draw(t, "attempts"), 2)
	if rapid.IntRange(0, 2).Draw(t, "cancel?") == 0 {
		p.cancelAt = time.Duration(rapid.IntRange(1, 12).Draw(t, "cancel at"))*timeUnit - time.Minute
	}
	all := map[string]*fate{}
	want := predict(id, p, 0, met, all)
	ps.mu.Lock()
	ps.wrong = nil
	ps.add(id, p)
	ps.mu.Unlock()
	startSecond()
	began := time.Now()
	started, err := ps.flow.Start(t.Context(), id, 0, honker.MaxAttempts(p.attempts))
	require.NoError(t, err)
	require.True(t, started)
	driven := make(chan []string, 1)
	go func() { driven <- ps.drive(id, p, all) }()
	ps.check(t, id, want)
	took := time.Since(began)
	require.GreaterOrEqual(t, took, want.end)
	require.Less(t, took, want.end+halfUnit, "a wake was missed")
	require.Empty(t, <-driven)
	for id, f := range all { // called runs outlive a cancelled caller
		time.Sleep(time.Until(began.Add(f.end + halfUnit)))
		ps.check(t, id, f)
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	require.Empty(t, ps.wrong)
}

// flowRounds returns the number of rounds of random programs.
func flowRounds() int {
	if testing.Short() {
		return 3
	}
	return 10
}

// TestFlow_Model compares the runs of random programs with the predictions of an interpreter.
func TestFlow_Model(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: 1000 * time.Hour})
		exec(t, db, `CREATE TABLE model_effects (run TEXT NOT NULL, name TEXT NOT NULL)`)
		ps := &players{t: t, db: db, runs: map[string]*player{}}
		ps.flow = flow.New(db, "model", ps.play, &flow.Options{Queue: honker.QueueOptions{Backoff: honker.Constant(time.Second)}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		defer cancel()
		go func() { ended <- ps.flow.Work(ctx, &honker.WorkOptions{Workers: 4, Lease: 10 * time.Second}) }()
		checks := 0
		for range flowRounds() { // rapid ends a round after a day
			rapid.Check(undated{t}, func(t *rapid.T) {
				checks++
				ps.checkProgram(t, fmt.Sprint("run", checks), met)
			})
		}
		cancel()
		require.NoError(t, <-ended)
	})
	requireMet(t, met, "ended: done", "ended: failed", "ended: cancelled", "undone", "early signal", "late signal", "timeout", "call", "lapse", "fan out")
	t.Log(met)
}
