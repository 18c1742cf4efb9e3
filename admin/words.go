package admin

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/honker-go/honker"
)

// jobs formats a number of jobs.
func jobs(c honker.Count) string { return counted(c, "job") }

// counted formats a count followed by noun, pluralized if necessary.
func counted(c honker.Count, noun string) string {
	if c == (honker.Count{N: 1}) {
		return "1 " + noun
	}
	return c.String() + " " + noun + "s"
}

// plural is like counted for an exact number.
func plural(n int64, noun string) string { return counted(honker.Count{N: n}, noun) }

// listed formats job IDs with a leading comma. It returns "" if there are none.
func listed(ids []int64) string {
	if len(ids) == 0 {
		return ""
	}
	return ", " + named(ids)
}

// named formats the first few job IDs.
func named(ids []int64) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = strconv.FormatInt(id, 10)
	}
	if len(ids) == 1 {
		return "job " + names[0]
	}
	return "jobs " + firstOf(names)
}

// firstOf joins the first few names and says how many are omitted.
func firstOf(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// quoted returns the first line of an error in quotes, truncated to 200 characters.
func quoted(text string) string {
	const most = 200
	if text == "" {
		return "no error was given"
	}
	line, _, _ := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > most {
		line = string(runes[:most]) + "…"
	}
	return strconv.Quote(line)
}
