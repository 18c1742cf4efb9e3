package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/ui"
)

// guarded returns a door with accounts for ann and bob, where hashing a password takes a fixed time.
func guarded(t *testing.T, hashing time.Duration) *door {
	t.Helper()
	s, err := (&app{console: console{getenv: func(string) string { return "" }}}).accounts([]string{"ann:" + hashOfSecret, "bob:" + hashOfGrosse})
	require.NoError(t, err)
	s.compare = func(hash, password []byte) error {
		time.Sleep(hashing)
		if string(hash) == hashOfGrosse && string(password) == "right" {
			return nil
		}
		return errors.New("wrong")
	}
	// The pages have no file, so a request that is let through gets a 500.
	return &door{accounts: s, pages: ui.New(nil, &ui.Options{Authorize: ui.AllowAll})}
}

func signIn(d *door, from, name, password string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = from + ":4711"
	r.SetBasicAuth(name, password)
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// A hundred clients with wrong passwords do not lock out valid logins from the same address, behind a proxy, or from
// another address. A valid login waits for only a few others, and the remaining clients are told to retry later.
func TestDoor_WrongPasswords_ShutNoneOut(t *testing.T) {
	const hashing = 100 * time.Millisecond
	for name, from := range map[string]string{"same address": "192.0.2.1", "another address": "192.0.2.2"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := guarded(t, hashing)
				var over atomic.Bool
				var later atomic.Int64
				for range 100 {
					go func() {
						for !over.Load() {
							w := signIn(d, "192.0.2.1", "ann", "wrong")
							if w.Code == http.StatusTooManyRequests {
								later.Add(1)
								if w.Header().Get("Retry-After") != "1" {
									t.Error("no Retry-After")
								}
							}
							time.Sleep(100 * time.Millisecond)
						}
					}()
				}
				time.Sleep(2 * time.Second)
				began := time.Now()
				w := signIn(d, from, "bob", "right")
				require.Equal(t, http.StatusInternalServerError, w.Code, "it comes through: %s", w.Body)
				require.LessOrEqual(t, time.Since(began), 10*hashing)
				require.NotZero(t, later.Load())
				over.Store(true)
				time.Sleep(time.Minute) // until all clients have ended
			})
		})
	}
}

// Addresses take turns. No matter how many names an address tries, it delays other addresses by only a single
// comparison. An IPv6 network counts as a single address.
func TestDoor_WrongPasswords_TurnsByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hashing = time.Second
		d := guarded(t, hashing)
		codes := make(chan int, 40)
		for i := range 40 {
			go func() {
				codes <- signIn(d, "[2001:db8::"+string(rune('a'+i%6))+"]", "name "+string(rune('a'+i)), "wrong").Code
			}()
			synctest.Wait()
		}
		began := time.Now()
		require.Equal(t, http.StatusInternalServerError, signIn(d, "192.0.2.2", "bob", "right").Code)
		require.LessOrEqual(t, time.Since(began), 3*hashing)
		refused := 0
		for range 40 {
			if code := <-codes; code == http.StatusTooManyRequests {
				refused++
			}
		}
		require.GreaterOrEqual(t, refused, 20)
	})
}

// A login that has waited too long is rejected and leaves the queue.
func TestDoor_LoginWaits_NoLongerThan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := guarded(t, 8*time.Second)
		go signIn(d, "192.0.2.1", "ann", "wrong")
		synctest.Wait()
		began := time.Now()
		w := signIn(d, "192.0.2.2", "bob", "right")
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Equal(t, "5", w.Header().Get("Retry-After"))
		time.Sleep(5 * time.Second)
		began = time.Now()
		require.Equal(t, http.StatusInternalServerError, signIn(d, "192.0.2.2", "bob", "right").Code)
		require.Equal(t, 8*time.Second, time.Since(began))
	})
}
