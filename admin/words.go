package admin

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/honker-go/honker"
)

// jobs names a number of them.
func jobs(c honker.Count) string { return counted(c, "job") }

// counted is a number of what noun names.
func counted(c honker.Count, noun string) string {
	if c == (honker.Count{N: 1}) {
		return "1 " + noun
	}
	return c.String() + " " + noun + "s"
}

// plural is counted of a number that is exact.
func plural(n int64, noun string) string { return counted(honker.Count{N: n}, noun) }

// listed are ids behind a number of them.
func listed(ids []int64) string {
	if len(ids) == 0 {
		return ""
	}
	return ", " + named(ids)
}

// named are some of the ids of jobs.
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

// firstOf are the first of names, and how many others there are.
func firstOf(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// quoted is the first line of an error, or of what there is of it.
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

// command is a command line of honker's, which a shell can be given.
func command(words ...any) string {
	line := "honker"
	for _, word := range words {
		line += " " + shellWord(fmt.Sprint(word))
	}
	return line
}

// resume is the command that ends the pause of a queue, or of a key of it.
func resume(queue, key string) string {
	if key == "" {
		return command("queue", "resume", queue)
	}
	return command("queue", "resume", queue, "--key", key)
}

// shellWord is a word, in quotes where a shell would take it apart.
func shellWord(word string) string {
	apart := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:@%+=,", r)
	}
	if word != "" && !strings.ContainsFunc(word, apart) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
