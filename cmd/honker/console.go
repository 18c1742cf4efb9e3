package main

import (
	"io"
	"os"
	"os/user"
	"time"

	"golang.org/x/term"
)

// console holds a command's standard streams and environment.
type console struct {
	stdin      io.Reader
	stdout     io.Writer
	stderr     io.Writer
	inTerm     bool // stdin is a terminal, so questions can be asked
	outTerm    bool // stdout is a terminal, so a person is reading
	width      int  // of the terminal of stdout, in cells; 0 if it has none, or if it is unknown
	color      bool
	getenv     func(string) string
	empty      string // a variable that names the database and is set but empty; "" for none
	actor      string // user@host
	currentDir string
	patience   time.Duration // limit of a completion, because a user has pressed a key and is waiting
	noNotices  bool          // don't use the system's file notifications, which don't work in a testing/synctest bubble
}

func stdConsole() console {
	outTerm := term.IsTerminal(int(os.Stdout.Fd()))
	width, _, _ := term.GetSize(int(os.Stdout.Fd())) // 0 after an error
	return console{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		inTerm:     term.IsTerminal(int(os.Stdin.Fd())),
		outTerm:    outTerm,
		width:      width,
		color:      outTerm && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		getenv:     os.Getenv,
		empty:      emptyVariable(),
		actor:      actor(),
		currentDir: ".",
		patience:   time.Second,
	}
}

func emptyVariable() string {
	for _, name := range []string{fileVariable, dsnVariable} {
		if value, isSet := os.LookupEnv(name); isSet && value == "" {
			return name
		}
	}
	return ""
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
