package seqhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqhttp"
)

// The server lets only the primary in; the primary's client sends the sequencer
// of its lock.
func Example() {
	directory, _ := os.MkdirTemp("", "guard")
	defer os.RemoveAll(directory)
	store, err := sequencer.OpenFileStore(filepath.Join(directory, "primary"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	guard, err := sequencer.NewGuard(context.Background(), sequencer.GuardConfig{
		Locks: []api.Path{api.MustParsePath("/ls/foo/svc/primary")},
		Store: store,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {}) // for anyone
	mux.Handle("/orders/", seqhttp.Middleware(guard)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held, _ := seqhttp.FromContext(r.Context())
		fmt.Fprintln(w, "done for token", held.Token())
	})))
	server := httptest.NewServer(mux)
	defer server.Close()

	// Two primaries, of which the first does not know yet that it was replaced.
	// The text comes from the lock: func() string { return lock.Sequencer().String() }
	was := &http.Client{Transport: seqhttp.Transport(nil, func() string {
		return "chubby1:x:41:00112233445566778899aabbccddeeff:61aa8073:/ls/foo/svc/primary"
	})}
	is := &http.Client{Transport: seqhttp.Transport(nil, func() string {
		return "chubby1:x:57:00112233445566778899aabbccddeeff:8534b459:/ls/foo/svc/primary"
	})}
	for _, client := range []*http.Client{was, is, was} {
		response, err := client.Post(server.URL+"/orders/7", "text/plain", nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		fmt.Printf("%d %s", response.StatusCode, body)
	}
	// Output:
	// 200 done for token 41
	// 200 done for token 57
	// 412 {"error":{"code":"BadSequencer","message":"check sequencer /ls/foo/svc/primary: token 41 is stale: 57 was seen for /ls/foo/svc/primary; the lock has passed on, so stop acting for it, or acquire it again (BadSequencer)","token":41,"newest":57}}
}
