package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/ui"
)

// dashboard serves package ui's pages, read-only. A server that is reachable from other machines
// should use ui.Basic or its own authorization instead of ui.ReadOnly.
type dashboard struct {
	server *http.Server
	url    string
	ended  chan error
}

// openDashboard starts the dashboard. It listens on the loopback interface if the address has no
// host.
func openDashboard(db *honker.DB, address string) (*dashboard, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("-ui: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("-ui: %w", err)
	}
	pages := ui.New(db, &ui.Options{Authorize: ui.ReadOnly, Title: "orders"})
	d := &dashboard{
		server: &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second},
		url:    "http://" + listener.Addr().String() + "/",
		ended:  make(chan error, 1),
	}
	d.server.RegisterOnShutdown(pages.Close) // open pages would delay Shutdown
	go func() { d.ended <- d.server.Serve(listener) }()
	return d, nil
}

// close shuts the dashboard down, giving open requests a second to finish.
func (d *dashboard) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if d.server.Shutdown(ctx) != nil {
		_ = d.server.Close()
	}
	<-d.ended
}

// serveAndShow is serve with a dashboard, which stays up after the report until ctx is done.
func (s *service) serveAndShow(ctx context.Context) error {
	d, err := openDashboard(s.file, s.ui)
	if err != nil {
		return err
	}
	defer d.close()
	fmt.Fprintln(s.w, "dashboard:", d.url)
	if err := s.serve(ctx); err != nil {
		return err
	}
	if ctx.Err() == nil {
		fmt.Fprintln(s.w, "The dashboard stays up until the program is interrupted.")
		<-ctx.Done()
	}
	return nil
}
