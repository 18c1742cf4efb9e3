package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/seal"
)

// cell is a table value that has separate forms for people and for programs.
type cell struct {
	human, raw string
	right      bool // align right, for numbers
	style      style
}

// style is a terminal color for important cells, and for headers.
type style string

const (
	plain  style = ""
	red    style = "\x1b[31m"
	yellow style = "\x1b[33m"
	dim    style = "\x1b[2m"
	reset        = "\x1b[0m"
)

func text(s string) cell { return cell{human: s, raw: s} }

func (c cell) in(s style) cell {
	c.style = s
	return c
}

// long shows a text on a single line.
func long(s string) cell { return cell{human: oneLine(s), raw: s} }

func oneLine(s string) string { return clean(strings.Join(strings.Fields(s), " ")) }

// brief abbreviates a text to a single line of at most 60 cells.
func brief(s string) string { return shortened(oneLine(s), 60) }

// payload shows the stored payload of a job. For a sealed payload, a terminal shows the ID of its key.
func payload(j honker.JobInfo, shown func(string) cell) cell {
	key, sealed := seal.KeyOf(j.Payload)
	if !sealed || key == "" { // plain data that resembles a sealed payload
		return shown(string(j.Payload))
	}
	return cell{human: fmt.Sprintf("sealed with key %s, %d bytes", key, len(j.Payload)), raw: string(j.Payload)}
}

func truth(yes bool) cell {
	if yes {
		return cell{human: "yes", raw: "true"}
	}
	return cell{human: "no", raw: "false"}
}

func number(n int64) cell {
	return cell{human: honker.Count{N: n}.String(), raw: strconv.FormatInt(n, 10), right: true}
}

func id(n int64) cell {
	s := strconv.FormatInt(n, 10)
	return cell{human: s, raw: s, right: true}
}

// count shows a number that may be a lower bound. Zero is shown as a dash, so that other values stand out.
func count(c honker.Count) cell {
	out := number(c.N)
	if out.human = c.String(); c == (honker.Count{}) {
		out.human = "-"
	}
	if c.More {
		out.raw += "+"
	}
	return out
}

// when shows a time relative to now.
func when(t time.Time) cell {
	if t.IsZero() {
		return cell{human: "-"}
	}
	return cell{human: admin.FormatAgo(time.Since(t)), raw: t.UTC().Format(time.RFC3339)}
}

// at shows a time with its date. It is used where a single object is shown.
func at(t time.Time) cell {
	c := when(t)
	if !t.IsZero() {
		c.human = c.raw + " (" + c.human + ")"
	}
	return c
}

func deadColor(n int64) style {
	if n > 0 {
		return red
	}
	return plain
}

// lateColor highlights the time of a job, schedule or other work that has been due for five minutes.
func lateColor(due time.Time) style {
	if !due.IsZero() && time.Since(due) > 5*time.Minute {
		return yellow
	}
	return plain
}

// phaseCell highlights jobs that do not run by themselves.
func phaseCell(p honker.Phase) cell {
	switch p {
	case honker.PhaseDead:
		return text(string(p)).in(red)
	case honker.PhaseLapsed, honker.PhaseExpired:
		return text(string(p)).in(yellow)
	}
	return text(string(p))
}

// clean makes text safe for a terminal. A payload could otherwise move the cursor or send other control
// sequences.
func clean(s string) string {
	if !strings.ContainsFunc(s, unsafe) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unsafe(r) || r == utf8.RuneError {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// unsafe reports whether r is a control character or changes the text direction.
func unsafe(r rune) bool {
	return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
}

var tsvEscapes = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`)

func writeTSV(w io.Writer, row []cell) error {
	fields := make([]string, len(row))
	for i, c := range row {
		fields[i] = clean(tsvEscapes.Replace(c.raw))
	}
	_, err := fmt.Fprintln(w, strings.Join(fields, "\t"))
	return err
}

// cells returns the number of cells that s takes up on a terminal: two for wide characters, such as Japanese and most
// emoji, and none for combining marks and color escapes.
func cells(s string) int { return ansi.StringWidth(s) }

// cut shortens s to width cells. A width of 0 means no limit. It keeps color escapes, so that colors are always
// turned off again.
func cut(s string, width int) string {
	if width <= 0 {
		return s
	}
	return ansi.Truncate(s, width, "…")
}

// writeTable prints aligned columns. On a terminal they are fitted to its width, and the columns named spare are the first
// that a narrow terminal does without.
func (a *app) writeTable(header []string, rows [][]cell, spare []string) error {
	for _, row := range rows {
		for i := range row {
			row[i].human = clean(strings.ReplaceAll(row[i].human, "\n", " "))
		}
	}
	g, left := grid{header, rows, a.quiet}, []string(nil)
	if a.fits() {
		g, left = g.fitted(a.width, a.columns, spare)
	}
	widths := g.widths()
	if !a.quiet {
		if err := a.writeRow(g.head(), widths); err != nil {
			return err
		}
	}
	for _, row := range g.rows {
		if err := a.writeRow(row, widths); err != nil {
			return err
		}
	}
	if left != nil {
		a.note("the terminal is too narrow for %s; --wide prints all columns", strings.Join(left, ", "))
	}
	return nil
}

func (a *app) writeRow(row []cell, widths []int) error {
	var b strings.Builder
	for i, c := range row {
		pad := strings.Repeat(" ", widths[i]-cells(c.human))
		switch {
		case c.right:
			b.WriteString(pad + a.styled(c))
		case i == len(row)-1:
			b.WriteString(a.styled(c))
		default:
			b.WriteString(a.styled(c) + pad)
		}
		if i < len(row)-1 {
			b.WriteString("  ")
		}
	}
	line := strings.TrimRight(b.String(), " ")
	if a.fits() {
		line = cut(line, a.width)
	}
	_, err := fmt.Fprintln(a.out, line)
	return err
}

func (a *app) styled(c cell) string {
	if !a.color || c.style == plain || c.human == "" {
		return c.human
	}
	return string(c.style) + c.human + reset
}

// writeFields prints a name and a value on each line. Multi-line values are printed on several lines, aligned with
// each other.
func (a *app) writeFields(names []string, row []cell) error {
	width := 0
	for _, name := range names {
		width = max(width, len(name))
	}
	w := bufio.NewWriter(a.out)
	for i, c := range row {
		if c.human == "" {
			continue
		}
		c.human = strings.ReplaceAll(clean(c.human), "\n", "\n"+strings.Repeat(" ", width+2))
		fmt.Fprintf(w, "%-*s  %s\n", width, names[i], a.styled(c))
	}
	return w.Flush()
}
