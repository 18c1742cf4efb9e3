//go:build unix

package pgcluster

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// bouncer is the script that runs PgBouncer until its standard input ends.
//
//go:embed bouncer.sh
var bouncer string

// Bouncer is a running PgBouncer on a Unix socket.
type Bouncer struct{ *process }

// ErrNoBouncer reports that PgBouncer is not installed.
var ErrNoBouncer = errors.New("no PgBouncer: install Debian's package pgbouncer")

// A startup parameter that PgBouncer does not know is refused.
const bouncerSettings = `[databases]
* = %s
[pgbouncer]
listen_addr =
unix_socket_dir = %s
listen_port = 6432
auth_type = trust
auth_file = %[2]s/users
default_pool_size = 10
max_client_conn = 500
%s
`

// StartBouncer starts PgBouncer before a server. The target has the keys of PgBouncer's section databases, such as
// "host=/tmp port=5432". Settings are further lines of the section pgbouncer. The users may connect without a password.
func StartBouncer(target, settings string, users ...string) (*Bouncer, error) {
	bin := "/usr/sbin/pgbouncer" // seldom in the path
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		bin = path
	} else if _, err := os.Stat(bin); err != nil {
		return nil, ErrNoBouncer
	}
	all, err := settingsFor(bin)
	if err != nil {
		return nil, err
	}
	p, err := newProcess()
	if err != nil {
		return nil, err
	}
	list := ""
	for _, u := range users {
		list += `"` + strings.ReplaceAll(u, `"`, `""`) + "\" \"\"\n"
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(p.dir, "users"), []byte(list), 0o644),
		os.WriteFile(filepath.Join(p.dir, "ini"), fmt.Appendf(nil, all, target, p.dir, settings), 0o644))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	if err := p.run(bouncer, bin, p.dir); err != nil {
		return nil, fmt.Errorf("PgBouncer has not started: %w", err)
	}
	return &Bouncer{p}, nil
}

// settingsFor returns the settings for the version of the program. Version 1.21 and newer can keep prepared statements for
// their clients. The tests are about poolers that cannot.
func settingsFor(bin string) (string, error) {
	out, err := exec.Command(bin, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", bin, err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor); err != nil {
		return "", fmt.Errorf("the version of PgBouncer, %q: %w", out, err)
	}
	if major > 1 || minor >= 21 {
		return bouncerSettings + "max_prepared_statements = 0\n", nil
	}
	return bouncerSettings, nil
}

// DSN returns a connection string without a user and a database.
func (b *Bouncer) DSN() string { return "host=" + b.dir + " port=6432" }
