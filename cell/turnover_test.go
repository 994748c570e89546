package cell

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A flood of connections to the http port that send nothing is bounded, and
// another client's request is answered meanwhile.
func TestFloodOfTheHTTPPort(t *testing.T) {
	r, err := Start(t.Context(), Config{
		Cell: "local", ID: "r1", Members: []Member{{ID: "r1", Client: "127.0.0.1:1", Raft: "127.0.0.1:2", HTTP: "127.0.0.1:3"}}, Data: filepath.Join(t.TempDir(), "r1"), Bootstrap: true,
		Listen: Addresses{Client: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Stop(t.Context()) }()
	address := r.cfg.HTTPListener.Addr().String()
	ask := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 2 {
		var flood []net.Conn
		for range maxHTTPConns + 1 {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			flood = append(flood, conn)
		}
		answer, err := ask.Get("http://" + address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("a health check meanwhile: %s, %v", answer.Status, err)
		}
		_ = answer.Body.Close()
		_ = flood[0].SetReadDeadline(time.Now().Add(2 * time.Second)) // before its header is overdue
		if _, err := flood[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the oldest connection is kept: %v", err)
		}
		for _, conn := range flood {
			_ = conn.Close()
		}
	}
}
