package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerprom"
)

func (a *app) metrics() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print or serve Prometheus metrics of the file",
		Long: `metrics prints the state of the file as metrics for Prometheus: jobs by queue and phase, the age of the oldest job, the lag of
consumers, schedules and problems. For the textfile directory of a node exporter, replace the file atomically:

  honker metrics > honker.prom.new && mv honker.prom.new honker.prom

With --listen it serves the metrics at /metrics until it is interrupted. It does not write to the file. For metrics about the
processes of an application, use the module honkerprom in them.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&listen, "listen", "", "serve the metrics on this `address`, such as 127.0.0.1:9191")
	must(cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions))
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		if cmd.Flags().Changed("output") {
			return usage("honker status -o json", "metrics has a fixed format: -o cannot be used")
		}
		if listen != "" {
			return a.serveMetrics(ctx, listen)
		}
		var text bytes.Buffer
		if err := a.writeMetrics(ctx, &text); err != nil {
			return err
		}
		_, err := a.out.WriteString(cleanMetrics(text.String()))
		return err
	})
}

// writeMetrics writes the current metrics of the file.
func (a *app) writeMetrics(ctx context.Context, to io.Writer) error {
	return a.look(ctx, func(db *honker.DB) error {
		quiet := slog.New(slog.DiscardHandler) // Read returns the error
		c := honkerprom.New(db, &honkerprom.Options{Logger: quiet})
		limited, cancel := context.WithTimeout(ctx, a.timeout)
		defer cancel()
		if err := c.Read(limited); err != nil {
			return fmt.Errorf("read the metrics: %w", err)
		}
		reg := prometheus.NewRegistry()
		reg.MustRegister(c)
		families, err := reg.Gather()
		if err != nil {
			return err
		}
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(to, f); err != nil {
				return err
			}
		}
		return nil
	})
}

// cleanMetrics is like clean, but doubles the backslashes in escapes, as label values require.
func cleanMetrics(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unsafe(r) {
			b.WriteByte('\\')
		}
		b.WriteString(clean(string(r)))
	}
	return b.String()
}

// served caches the metrics, so that several scrapers cause only a single read of the file.
type served struct {
	app *app

	mu   sync.Mutex
	text []byte
	at   time.Time
}

// servedFor is how long cached metrics are served.
const servedFor = time.Second

// serveMetrics serves until ctx ends. Each read reopens the file, because a file that was opened while no process was
// using it doesn't see later writes.
func (a *app) serveMetrics(ctx context.Context, address string) error {
	if err := a.look(ctx, func(*honker.DB) error { return nil }); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return usage("honker metrics --listen 127.0.0.1:9191", "%w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", &served{app: a})
	server := newServer(mux, slog.NewLogLogger(a.logger().Handler(), slog.LevelWarn))
	server.WriteTimeout += a.timeout // leave time for reading the file
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	a.note("serving http://%s/metrics", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := s.read(r.Context())
	if err != nil {
		s.app.note("%v", err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	_, _ = w.Write(text) // the scraper may have closed the connection
}

func (s *served) read(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text != nil && time.Since(s.at) < servedFor {
		return s.text, nil
	}
	var b bytes.Buffer
	if err := s.app.writeMetrics(ctx, &b); err != nil {
		return nil, err
	}
	s.text, s.at = b.Bytes(), time.Now()
	return s.text, nil
}
