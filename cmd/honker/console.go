package main

import (
	"io"
	"os"
	"os/user"

	"golang.org/x/term"
)

// console holds a command's standard streams and environment.
type console struct {
	stdin      io.Reader
	stdout     io.Writer
	stderr     io.Writer
	inTerm     bool // stdin is a terminal, so questions can be asked
	outTerm    bool // stdout is a terminal, so a person is reading
	color      bool
	getenv     func(string) string
	emptyFile  bool   // $HONKER_FILE is set but empty
	actor      string // user@host
	currentDir string
	noNotices  bool // don't use the system's file notifications, which don't work in a testing/synctest bubble
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

// actor returns user@host, for observers and for recording who paused a queue.
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
