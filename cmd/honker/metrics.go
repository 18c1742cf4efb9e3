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
	"regexp"
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
	var listen, label string
	m := &exporter{app: a}
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print or serve Prometheus metrics of the file",
		Long: `metrics prints the state of the file as metrics for Prometheus: jobs by queue and phase, the age of the oldest job, the lag of
consumers, schedules and problems. For the textfile directory of a node exporter, replace the file atomically:

  honker metrics > honker.prom.new && mv honker.prom.new honker.prom

If there are more queues than --max-queues, the queues with the most jobs and traffic keep their names. The others are added up as
"_other". For queues of customers, such as mails-17, --queue-label 's/-\d+$//' adds up all of them as mails. The pattern is a regular
expression of Go, and $1 in the replacement is its first group. With a g at the end, all matches are replaced.

With --listen it serves the metrics at /metrics until it is interrupted. It does not write to the file. For metrics about the
processes of an application, use the module honkerprom in them.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&listen, "listen", "", "serve the metrics on this `address`, such as 127.0.0.1:9191")
	cmd.Flags().IntVar(&m.opts.MaxQueues, "max-queues", 100, "name at most `n` queues, topics, consumers and so on")
	cmd.Flags().StringVar(&label, "queue-label", "", "rename queues by this `substitution`, such as 's/-\\d+$//'")
	for _, flag := range []string{"listen", "max-queues", "queue-label"} {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions))
	}
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		if cmd.Flags().Changed("output") {
			return usage("honker status -o json", "metrics has a fixed format: -o cannot be used")
		}
		if m.opts.MaxQueues < 1 {
			return usage("honker metrics --max-queues 500", "--max-queues must be positive, but is %d", m.opts.MaxQueues)
		}
		if label != "" {
			var err error
			if m.opts.QueueLabel, err = substitution(label); err != nil {
				return usage(`honker metrics --queue-label 's/-\d+$//'`, "--queue-label: %w", err)
			}
		}
		if listen != "" {
			return m.serve(ctx, listen)
		}
		var text bytes.Buffer
		if err := m.write(ctx, &text); err != nil {
			return err
		}
		_, err := a.out.WriteString(cleanMetrics(text.String()))
		return err
	})
}

// substitution parses a substitution of the form s/pattern/replacement/ and returns a function that makes it.
func substitution(text string) (func(string) string, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 || parts[0] != "s" || parts[3] != "" && parts[3] != "g" {
		return nil, fmt.Errorf("%q must have the form s/pattern/replacement/", text)
	}
	pattern, err := regexp.Compile(parts[1])
	if err != nil {
		return nil, err
	}
	replacement := parts[2]
	if parts[3] == "g" {
		return func(queue string) string { return pattern.ReplaceAllString(queue, replacement) }, nil
	}
	return func(queue string) string {
		at := pattern.FindStringSubmatchIndex(queue)
		if at == nil {
			return queue
		}
		return queue[:at[0]] + string(pattern.ExpandString(nil, replacement, queue, at)) + queue[at[1]:]
	}, nil
}

// exporter writes the metrics of the file. It keeps its collector between reads, so that queues keep their labels.
type exporter struct {
	app       *app
	opts      honkerprom.Options
	collector *honkerprom.Collector // nil before the first read
}

// write writes the current metrics of the file.
func (m *exporter) write(ctx context.Context, to io.Writer) error {
	return m.app.look(ctx, func(db *honker.DB) error {
		if m.collector == nil {
			m.opts.Logger = slog.New(slog.DiscardHandler) // Read returns the error
			m.collector = honkerprom.New(db, &m.opts)
		}
		m.collector.Reopen(db)
		limited, cancel := context.WithTimeout(ctx, m.app.timeout)
		defer cancel()
		if err := m.collector.Read(limited); err != nil {
			return fmt.Errorf("read the metrics: %w", err)
		}
		reg := prometheus.NewRegistry()
		reg.MustRegister(m.collector)
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
	metrics *exporter

	mu   sync.Mutex
	text []byte
	at   time.Time
}

// servedFor is how long cached metrics are served.
const servedFor = time.Second

// serve serves until ctx ends. Each read reopens the file, because a file that was opened while no process was
// using it doesn't see later writes.
func (m *exporter) serve(ctx context.Context, address string) error {
	a := m.app
	if err := a.look(ctx, func(*honker.DB) error { return nil }); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return usage("honker metrics --listen 127.0.0.1:9191", "%w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", &served{metrics: m})
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
		s.metrics.app.note("%v", err)
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
	if err := s.metrics.write(ctx, &b); err != nil {
		return nil, err
	}
	s.text, s.at = b.Bytes(), time.Now()
	return s.text, nil
}
