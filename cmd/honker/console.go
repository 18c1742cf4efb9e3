package main

import (
	"io"
	"os"
	"os/user"

	"golang.org/x/term"
)

// console is what a command reads, and where it writes.
type console struct {
	stdin      io.Reader
	stdout     io.Writer
	stderr     io.Writer
	inTerm     bool // stdin is a terminal, so a question can be asked
	outTerm    bool // stdout is a terminal, so a person reads it
	color      bool
	getenv     func(string) string
	emptyFile  bool   // $HONKER_FILE is set, to nothing
	actor      string // user@host
	currentDir string
	noNotices  bool // of the system, of commits: in a bubble of testing/synctest there are none
}

func stdConsole() console {
	file, isSet := os.LookupEnv(fileVariable)
	outTerm := term.IsTerminal(int(os.Stdout.Fd()))
	return console{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		inTerm:     term.IsTerminal(int(os.Stdin.Fd())),
		outTerm:    outTerm,
		color:      outTerm && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		getenv:     os.Getenv,
		emptyFile:  isSet && file == "",
		actor:      actor(),
		currentDir: ".",
	}
}

// actor names the person that runs the command, for observers and for the pause of a queue.
func actor() string {
	name, host := os.Getenv("USER"), "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
