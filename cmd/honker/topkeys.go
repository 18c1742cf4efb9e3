package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// topModel is the state of the screen: the last reading and the user's choices.
type topModel struct {
	ctx     context.Context
	app     *app
	db      *honker.DB
	commits *commitCount

	frame
	read      bool
	filtering bool     // the filter is being typed
	question  *asked   // waiting to be confirmed with y
	notice    string   // result of the last action
	below     []string // details of the selected queue; nil while the queues are shown
	help      bool
	readings  int // number of readings received
}

// asked is a question, with the action to perform if the answer is y.
type asked struct {
	text string
	do   tea.Cmd
}

// Messages sent by the screen's commands.
type (
	noticed string   // an action has finished
	opened  []string // details of a queue
	settled int      // a minute has passed since this reading
)

func newTopModel(ctx context.Context, a *app, db *honker.DB, commits *commitCount) *topModel {
	m := &topModel{ctx: ctx, app: a, db: db, commits: commits}
	m.color = a.color
	return m
}

// Init implements tea.Model. The first reading arrives without a command.
func (m *topModel) Init() tea.Cmd { return nil }

// View implements tea.Model.
func (m *topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	return v
}

func (m *topModel) screen() []string {
	if !m.read {
		return []string{"reading…"}
	}
	f := m.frame
	f.foot = []string{m.footer()}
	if !m.help && m.below == nil {
		return f.lines()
	}
	lines := m.below
	if m.help {
		lines = topHelp
	}
	if f.height > 2 && len(lines) > f.height-2 {
		lines = lines[:f.height-2]
	}
	out := append(append([]string{f.head()}, lines...), f.foot...)
	for i, line := range out {
		out[i] = cut(line, f.width)
	}
	return out
}

var topHelp = []string{
	"",
	"  up down, j k  select a queue",
	"  p  r          pause or resume the queue",
	"  enter         show its next jobs",
	"  e             explain why none of its jobs runs",
	"  d             show its dead jobs by error",
	"  /             filter queues by name",
	"  s             sort by trouble, ready jobs, oldest job, failures or name",
	"  space         read the file now",
	"  esc           back",
	"  q             quit",
}

func (m *topModel) footer() string {
	switch {
	case m.question != nil:
		return m.question.text + " [y/N]"
	case m.filtering:
		return "/" + m.filter + "_"
	case m.notice != "":
		return m.notice
	case m.below != nil || m.help:
		return "esc: back  q: quit"
	}
	return "p: pause  r: resume  enter: jobs  e: why  d: dead  /: filter  s: sort by " + m.order.next().String() + "  ?: keys  q: quit"
}

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case reading:
		return m, m.take(msg)
	case settled:
		if int(msg) == m.readings {
			return m, m.readNow
		}
	case noticed:
		m.notice = string(msg)
	case opened:
		m.below = msg
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

// take shows a reading. Its rates for the last minute become outdated even if nothing is committed, so the file is
// read again after a minute.
func (m *topModel) take(r reading) tea.Cmd {
	m.reading, m.read = r, true
	m.readings++
	m.keepSelection()
	if r.still() {
		return nil
	}
	this := m.readings
	return tea.Tick(2*time.Minute, func(time.Time) tea.Msg { return settled(this) })
}

// keepSelection selects the first queue if the selected queue is no longer shown.
func (m *topModel) keepSelection() {
	queues := m.shownQueues()
	if slices.ContainsFunc(queues, func(q honker.QueueStats) bool { return q.Queue == m.selected }) {
		return
	}
	m.selected = ""
	if len(queues) > 0 {
		m.selected = queues[0].Queue
	}
}

func (m *topModel) readNow() tea.Msg {
	r, err := m.app.readTop(m.ctx, m.db)
	if err != nil {
		return noticed(clean(err.Error()))
	}
	r.count(m.commits)
	return r
}

// key handles a key press.
func (m *topModel) key(key string) tea.Cmd {
	if key == "ctrl+c" {
		return tea.Quit
	}
	m.notice = ""
	switch {
	case m.question != nil:
		return m.answer(key)
	case m.filtering:
		m.typed(key)
		return nil
	}
	switch key {
	case "q":
		return tea.Quit
	case "esc":
		m.below, m.help = nil, false
	case "?":
		m.help = !m.help
	case "space":
		return m.readNow
	case "s":
		m.order = m.order.next()
	case "/":
		m.filtering, m.below, m.help = true, nil, false
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	default:
		return m.queueKey(key)
	}
	return nil
}

// queueKey handles a key press for the selected queue.
func (m *topModel) queueKey(key string) tea.Cmd {
	queue := m.selected
	if queue == "" {
		return nil
	}
	switch key {
	case "enter":
		return func() tea.Msg { return m.nextJobs(queue) }
	case "e":
		return func() tea.Msg { return m.whyOf(queue, m.width) }
	case "d":
		return func() tea.Msg { return m.deadOf(queue) }
	case "p":
		m.question = &asked{fmt.Sprintf("pause %s in all processes?", clean(queue)), m.steer(queue, "paused "+clean(queue), func(ctx context.Context, q *honker.Queue[json.RawMessage]) (bool, error) {
			return q.Pause(ctx, &honker.PauseOptions{By: m.app.actor})
		})}
	case "r":
		return m.steer(queue, "resumed "+clean(queue), func(ctx context.Context, q *honker.Queue[json.RawMessage]) (bool, error) { return q.Resume(ctx) })
	}
	return nil
}

func (m *topModel) answer(key string) tea.Cmd {
	do := m.question.do
	m.question = nil
	if key == "y" || key == "Y" {
		return do
	}
	m.notice = "nothing was changed"
	return nil
}

func (m *topModel) typed(key string) {
	letters := []rune(m.filter)
	switch {
	case key == "enter":
		m.filtering = false
	case key == "esc":
		m.filtering, m.filter = false, ""
	case key == "backspace" && len(letters) > 0:
		m.filter = string(letters[:len(letters)-1])
	case key == "space":
		m.filter += " "
	case len([]rune(key)) == 1:
		m.filter += key
	}
	m.keepSelection()
}

func (m *topModel) move(by int) {
	queues := m.shownQueues()
	for i, q := range queues {
		if q.Queue == m.selected {
			m.selected = queues[min(max(0, i+by), len(queues)-1)].Queue
			return
		}
	}
}

// steer opens the file for writing only while do runs. The screen itself only reads.
func (m *topModel) steer(queue, done string, do func(ctx context.Context, q *honker.Queue[json.RawMessage]) (bool, error)) tea.Cmd {
	return func() tea.Msg {
		changed := false
		err := m.app.change(m.ctx, func(db *honker.DB) (err error) {
			changed, err = do(m.ctx, byName(db, queue))
			return err
		})
		switch {
		case err != nil:
			return noticed(clean(err.Error()))
		case !changed:
			return noticed("nothing to change")
		}
		return noticed(done)
	}
}

// shownBelow limits the jobs listed for a queue.
const shownBelow = 100

// nextJobs shows a queue's counts and its next jobs, both read from the same snapshot.
func (m *topModel) nextJobs(queue string) tea.Msg {
	r, err := admin.QueueReport(m.ctx, m.db, queue, &admin.QueueReportOptions{Jobs: shownBelow, Waiting: true})
	if err != nil {
		return noticed(clean(err.Error()))
	}
	lines := opened{"", "  " + clean(queue) + ", in the order of their claims",
		fmt.Sprintf("  %s ready, %s running, %s scheduled, %s held, %s dead, %s", r.Ready, r.QueueStats.Running, r.Scheduled, r.Held,
			r.QueueStats.Dead, plural(int64(living(r.Workers)), "worker")), ""}
	for _, j := range r.Next {
		lines = append(lines, fmt.Sprintf("  %d  %-9s  %s  %s", j.ID, j.Phase, when(j.RunAt).human, clean(brief(string(j.Payload)))))
	}
	if len(r.Next) == 0 {
		lines = append(lines, "  no jobs")
	}
	return lines
}

// whyOf explains why a queue is idle, in lines that fit the screen.
func (m *topModel) whyOf(queue string, width int) tea.Msg {
	ex, err := admin.ExplainQueue(m.ctx, m.db, queue)
	if err != nil {
		return noticed(clean(err.Error()))
	}
	lines := opened{""}
	for _, line := range m.app.reasonLines("queue "+queue, m.app.explanation(ex)) {
		words := strings.TrimLeft(line, " ")
		indent := "  " + line[:len(line)-len(words)]
		for part := range strings.Lines(wrapped(words, width-len(indent))) {
			lines = append(lines, indent+strings.TrimSuffix(part, "\n"))
		}
	}
	return lines
}

func (m *topModel) deadOf(queue string) tea.Msg {
	r, err := admin.DeadGroupsWithin(m.ctx, m.db, admin.JobFilter{Queues: []string{queue}}, 10_000, time.Second)
	if err != nil {
		return noticed(clean(err.Error()))
	}
	lines := opened{"", "  " + clean(queue) + ": dead jobs by error", ""}
	for _, g := range r.Groups[:min(len(r.Groups), shownBelow)] {
		lines = append(lines, fmt.Sprintf("  %s  %s, last %s: %s", g.Fingerprint[:min(8, len(g.Fingerprint))], plural(g.N, "job"), when(g.Last).human, clean(brief(g.Sample))))
	}
	if len(r.Groups) == 0 {
		lines = append(lines, "  no dead jobs")
	}
	return lines
}
