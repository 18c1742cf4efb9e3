package main

import (
	"archive/zip"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	rootModule = "github.com/honker-go/honker"
	release    = "v0.1.0"
)

// A release of the modules can be installed, and reports its version.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a release")
	}
	t.Parallel()
	dir := t.TempDir()
	proxy, bin, elsewhere := filepath.Join(dir, "proxy"), filepath.Join(dir, "bin"), filepath.Join(dir, "elsewhere")
	require.NoError(t, os.Mkdir(elsewhere, 0o755))
	top := must1(filepath.Abs("../.."))
	publish(t, proxy, rootModule, top, string(must1(os.ReadFile(filepath.Join(top, "go.mod")))))
	own := string(must1(os.ReadFile("go.mod")))
	require.NotContains(t, own, "replace", "Go does not install a command of a module with one")
	needsRoot := "\nrequire " + rootModule + " " + release + "\n"
	needs := own + needsRoot
	for _, name := range []string{"honkerprom", "honkerpg"} {
		dir := filepath.Join(top, name)
		publish(t, proxy, rootModule+"/"+name, dir, string(must1(os.ReadFile(filepath.Join(dir, "go.mod"))))+needsRoot)
		needs += "require " + rootModule + "/" + name + " " + release + "\n"
	}
	publish(t, proxy, rootModule+"/cmd/honker", filepath.Join(top, "cmd", "honker"), needs)

	goTool := func(args ...string) *exec.Cmd {
		cmd := exec.Command("go", args...)
		cmd.Dir = elsewhere
		cmd.Env = append(os.Environ(), "GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(moduleCache(t))+"/cache/download,off",
			"GOSUMDB=off", "GOFLAGS=-modcacherw", "GOMODCACHE="+filepath.Join(dir, "mod"), "GOBIN="+bin, "GOWORK=")
		return cmd
	}
	out, err := goTool("install", "-trimpath", rootModule+"/cmd/honker@"+release).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(filepath.Join(bin, filepath.Base(binary)), "version", "-o", "json").CombinedOutput()
	require.NoError(t, err, "%s", out)
	var v map[string]string
	require.NoError(t, json.Unmarshal(out, &v))
	require.Equal(t, map[string]string{"version": release, "library": release, "go": runtime.Version()}, v)
}

func moduleCache(t *testing.T) string {
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// publish puts the module in dir into a file-based proxy, with mod as its go.mod.
func publish(t *testing.T, proxy, module, dir, mod string) {
	t.Helper()
	at := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	require.NoError(t, os.MkdirAll(at, 0o755))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(at, name), []byte(text), 0o644))
	}
	write("list", release+"\n")
	write(release+".info", `{"Version":"`+release+`","Time":"2026-01-01T00:00:00Z"}`)
	write(release+".mod", mod)
	file, err := os.Create(filepath.Join(at, release+".zip"))
	require.NoError(t, err)
	defer file.Close()
	zipped := zip.NewWriter(file)
	require.NoError(t, zipModule(zipped, module+"@"+release+"/", dir, mod))
	require.NoError(t, zipped.Close())
}

// zipModule adds the files of a module, without nested modules.
func zipModule(to *zip.Writer, prefix, dir, mod string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(must1(filepath.Rel(dir, path)))
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if rel != "." && (nested == nil || strings.HasPrefix(d.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || strings.HasSuffix(rel, ".db") {
			return nil
		}
		w, err := to.Create(prefix + rel)
		if err != nil {
			return err
		}
		if rel == "go.mod" {
			_, err = io.WriteString(w, mod)
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
}
