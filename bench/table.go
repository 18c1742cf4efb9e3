package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// writeMarkdown writes the header and all tables.
func (r *Results) writeMarkdown(w io.Writer, charts []string) error {
	var b strings.Builder
	b.WriteString("# Results\n\n")
	b.WriteString(r.Header.markdown())
	suite := ""
	for _, t := range r.Tables {
		if t.Suite != suite {
			suite = t.Suite
			b.WriteString("\n## " + suite + "\n" + r.summary(suite) + images(suite, charts))
		}
		b.WriteString(t.markdown())
	}
	b.WriteString(r.targetsMarkdown())
	_, err := io.WriteString(w, b.String())
	return err
}

func images(suite string, charts []string) string {
	var b strings.Builder
	for _, c := range charts {
		if strings.HasPrefix(c, suite+"-") {
			fmt.Fprintf(&b, "\n![%s](%s)\n", strings.TrimSuffix(c, ".svg"), c)
		}
	}
	return b.String()
}

func (h *Header) markdown() string {
	var b strings.Builder
	m := h.Machine
	fmt.Fprintf(&b, "- machine: %s, %d cores, %s, %s, kernel %s\n", m.CPU, m.Cores, m.Memory, m.OS, m.Kernel)
	fmt.Fprintf(&b, "- versions: %s, %s\n", m.Go, strings.Join(m.Versions, ", "))
	fmt.Fprintf(&b, "- run: %s, took %s; %s per suite, %d rounds, scale %g, seed %d\n", h.Began.Format("2006-01-02 15:04 MST"), h.Took, h.For, h.Rounds, h.Scale, h.Seed)
	fmt.Fprintf(&b, "- durability: %s\n", h.Durability)
	b.WriteString("- a cell is the median [min, max] of the rounds; × is the median of the rounds' ratios to `" + ceilingName + "`\n\n")
	for _, c := range h.Contestants {
		fmt.Fprintf(&b, "- **%s**: %s\n", c.Name, c.About)
	}
	for _, s := range h.Skipped {
		fmt.Fprintf(&b, "- %s: skipped, %s\n", s.Name, s.Why)
	}
	return b.String()
}

func (t *Table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s: %s (%s)\n\n", t.Suite, t.Case, t.Durability)
	if t.Load > 0 {
		fmt.Fprintf(&b, "Load average when it began: %s.\n\n", number(t.Load))
	}
	b.WriteString("|")
	for _, m := range t.Metrics {
		fmt.Fprintf(&b, " | %s", strings.TrimSpace(m.Name+" "+m.Unit))
	}
	b.WriteString(" |\n|---" + strings.Repeat("|---", len(t.Metrics)) + "|\n")
	for _, r := range t.Rows {
		b.WriteString(r.markdown(len(t.Metrics)))
	}
	return b.String()
}

func (r *Row) markdown(metrics int) string {
	if len(r.Cells) == 0 {
		return fmt.Sprintf("| %s | %s%s\n", r.Contestant, strings.ReplaceAll(r.Note, "|", "/"), strings.Repeat(" |", metrics))
	}
	var b strings.Builder
	b.WriteString("| " + r.Contestant)
	for _, c := range r.Cells {
		b.WriteString(" | " + c.markdown())
	}
	return b.String() + " |\n"
}

func (c *Cell) markdown() string {
	text := fmt.Sprintf("%s [%s, %s]", number(c.Median), number(c.Min), number(c.Max))
	if c.Ratio > 0 {
		text += " ×" + number(c.Ratio)
	}
	return text
}

// number formats v with three significant digits, or as an integer if it is larger.
func number(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return thousands(int(v + 0.5))
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// thousands formats n, which must not be negative, with thousands separators.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
