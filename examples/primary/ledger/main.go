// Command ledger is a server that a lock protects: it keeps the entries that the primary sends,
// and refuses earlier primaries.
//
// It knows nothing of sessions or leases, and never calls the cell. Every write brings the sequencer
// of the lock (Chubby §2.4). A sequencer.Guard, kept in a file across restarts, refuses those older
// than the newest it has seen.
//
//	ledger --listen 127.0.0.1:8080 --lock /ls/local/primary --state ledger.state
//
// POST /entries writes a line; GET /entries lists what was written; GET /stats
// says how many writes were accepted, and how many refused as stale.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqhttp"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve on")
	lock := flag.String("lock", "/ls/local/primary", "the lock whose holder may write")
	state := flag.String("state", "ledger.state", "file that keeps the newest sequencer across restarts")
	flag.Parse()
	if err := serve(*listen, *lock, *state); err != nil {
		log.Fatalf("ledger: %v", err)
	}
}

func serve(listen, lock, state string) error {
	path, err := api.ParsePath(lock)
	if err != nil {
		return err
	}
	store, err := sequencer.OpenFileStore(state)
	if err != nil {
		return err
	}
	defer store.Close()
	guard, err := sequencer.NewGuard(context.Background(), sequencer.GuardConfig{Locks: []api.Path{path}, Store: store})
	if err != nil {
		return err
	}
	server := &http.Server{Addr: listen, Handler: newLedger(guard), ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

// entry is one line of the ledger.
type entry struct {
	Token uint64 `json:"token"` // of the primary that wrote it
	Text  string `json:"text"`
}

// ledger keeps its entries in memory, because it is an example.
type ledger struct {
	mu      sync.Mutex // guards entries
	entries []entry
}

func newLedger(guard *sequencer.Guard) http.Handler {
	l := &ledger{}
	mux := http.NewServeMux()
	mux.Handle("POST /entries", seqhttp.Middleware(guard)(http.HandlerFunc(l.write)))
	mux.HandleFunc("GET /entries", l.list)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { reply(w, guard.Stats()) })
	return mux
}

// write appends a line. The guard has accepted the request.
func (l *ledger) write(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<10))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	seq, _ := seqhttp.FromContext(r.Context())
	l.mu.Lock()
	l.entries = append(l.entries, entry{Token: seq.Token(), Text: string(text)})
	n := len(l.entries)
	l.mu.Unlock()
	fmt.Fprintf(w, "entry %d\n", n)
}

func (l *ledger) list(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reply(w, l.entries)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Printf("ledger: %v", err)
	}
}
