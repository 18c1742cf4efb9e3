package main

import (
	"context"
	"errors"
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
	server   *http.Server
	listener net.Listener
}

// openDashboard listens on the address, or on the loopback interface if the address has no host.
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
	d := &dashboard{&http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}, listener}
	d.server.RegisterOnShutdown(pages.Close) // open pages would delay Shutdown
	return d, nil
}

// run serves until ctx is done, and then gives open requests a second to finish.
func (d *dashboard) run(ctx context.Context) error {
	stopped := make(chan struct{})
	context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if d.server.Shutdown(grace) != nil {
			_ = d.server.Close()
		}
		close(stopped)
	})
	if err := d.server.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}

// serveAndShow is serve with a dashboard, which stays up after the report until ctx is done.
func (s *service) serveAndShow(ctx context.Context) error {
	d, err := openDashboard(s.db, s.ui)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.w, "dashboard: http://%s/\n", d.listener.Addr())
	return honker.Run(ctx, d.run, func(ctx context.Context) error {
		err := s.serve(ctx)
		if err == nil && ctx.Err() == nil {
			fmt.Fprintln(s.w, "The dashboard stays up until the program is interrupted.")
		}
		return err
	})
}
