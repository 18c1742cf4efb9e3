package ui_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/ui"
)

// This example mounts a dashboard with a password in the application's own server.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "dashboard")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := honker.Open(context.Background(), filepath.Join(dir, "app.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	dashboard := ui.New(db, &ui.Options{Authorize: ui.Basic("ops", "secret"), Title: "staging"})
	defer dashboard.Close()
	mux := http.NewServeMux()
	mux.Handle("/honker/", dashboard)

	r := httptest.NewRequest(http.MethodGet, "/honker/", nil)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println(w.Code)

	r.SetBasicAuth("ops", "secret")
	w = httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println(w.Code)
	// Output:
	// 401
	// 200
}
