package seqhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqhttp"
)

const patience = time.Minute // bounds what should happen at once

func text(token uint64) string {
	return sequencer.Sequencer{
		Cell: "00112233445566778899aabbccddeeff", Path: api.MustParsePath("/ls/foo/svc/primary"),
		Mode: api.Exclusive, Generation: api.Generation(token),
	}.String()
}

// counting is what many a middleware does: it wraps the writer, and has no Unwrap.
type counting struct{ http.ResponseWriter }

// serve starts a guarded server, over HTTP/2 if asked, and behind a middleware that
// wraps the writer.
func serve(t *testing.T, http2, wrapped bool, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	store, err := sequencer.OpenFileStore(filepath.Join(t.TempDir(), "guard"))
	if err != nil {
		t.Fatal(err)
	}
	guard, err := sequencer.NewGuard(t.Context(), sequencer.GuardConfig{
		Locks: []api.Path{api.MustParsePath("/ls/foo/svc/primary")}, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	guarded := seqhttp.Middleware(guard)(handler)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wrapped {
			w = counting{w}
		}
		guarded.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = http2
	if http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(func() {
		server.Close()
		_ = store.Close()
	})
	return server
}

// holder is a client that sends the sequencer of that token.
func holder(server *httptest.Server, token uint64) *http.Client {
	return &http.Client{Transport: seqhttp.Transport(server.Client().Transport, func() string { return text(token) }), Timeout: patience}
}

// get sends a GET with these sequencers besides the client's own.
func get(t *testing.T, client *http.Client, url string, sequencers ...string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sequencers {
		r.Header.Add(seqhttp.Header, s)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(raw)
}

func TestRequestsAreFenced(t *testing.T) {
	var calls atomic.Int32
	server := serve(t, false, false, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		held, _ := seqhttp.FromContext(r.Context())
		_, _ = io.WriteString(w, held.String())
	})
	older, newer := holder(server, 41), holder(server, 57)
	for _, step := range []struct {
		client *http.Client
		want   string
	}{{older, text(41)}, {newer, text(57)}, {newer, text(57)}} {
		if status, body := get(t, step.client, server.URL); status != http.StatusOK || body != step.want {
			t.Fatalf("%d %s; want 200 and %s", status, body, step.want)
		}
	}
	// What a caller put there by hand gives way to what the transport knows, in
	// what is sent: the caller's request is not touched.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(seqhttp.Header, text(41))
	response, err := newer.Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if kept := r.Header.Get(seqhttp.Header); response.StatusCode != http.StatusOK || kept != text(41) {
		t.Errorf("%d, and the caller's request has %q", response.StatusCode, kept)
	}
	refused := func(want string, client *http.Client, sequencers ...string) {
		t.Helper()
		status, body := get(t, client, server.URL, sequencers...)
		var told struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(body), &told); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if status != http.StatusPreconditionFailed || told.Error.Code != "BadSequencer" || !strings.Contains(told.Error.Message, want) {
			t.Errorf("%d %s; want 412, BadSequencer and %q", status, body, want)
		}
	}
	refused("token 41 is stale: 57 was seen for /ls/foo/svc/primary", older)
	if _, body := get(t, older, server.URL); !strings.Contains(body, `,"token":41,"newest":57}}`) {
		t.Errorf("%s; want both tokens as fields", body)
	}
	if _, body := get(t, server.Client(), server.URL); strings.Contains(body, `"token"`) {
		t.Errorf("%s; there is no token", body)
	}
	refused("no sequencer", server.Client())
	refused("2 sequencers", server.Client(), text(57), text(58))
	refused("damaged", server.Client(), text(58)[:60])
	if got := calls.Load(); got != 4 {
		t.Errorf("the handler was called %d times; four requests were let in", got)
	}
}

// A guard that cannot decide is no reason for the holder to give the lock up.
func TestUndecidedIsNotRefused(t *testing.T) {
	guard, err := sequencer.NewGuard(t.Context(), sequencer.GuardConfig{
		Locks: []api.Path{api.MustParsePath("/ls/foo/svc/primary")}, Store: broken{}})
	if err != nil {
		t.Fatal(err)
	}
	let := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let in") })
	seqhttp.Middleware(guard)(let).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	if got, want := guard.Stats(), (sequencer.Stats{RefusedMissing: 1}); got != want {
		t.Errorf("%+v after a request without a sequencer, want %+v", got, want)
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(seqhttp.Header, text(41))
	seqhttp.Middleware(guard)(let).ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), `"code":"Unavailable"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type broken struct{}

func (broken) Load(context.Context) ([]sequencer.Sequencer, error) { return nil, nil }
func (broken) Save(context.Context, sequencer.Sequencer) error     { return errors.New("disk full") }

// closed tells when it was closed.
type closed struct {
	io.Reader
	done atomic.Bool
}

func (c *closed) Close() error { c.done.Store(true); return nil }

func TestNothingIsSentWithoutALock(t *testing.T) {
	body := &closed{Reader: strings.NewReader("x")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://127.0.0.1:0/x", body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := seqhttp.Transport(nil, func() string { return "" }).RoundTrip(r)
	if response != nil {
		_ = response.Body.Close()
	}
	if !errors.Is(err, api.BadSequencer) || !strings.Contains(err.Error(), "not sent") || !body.done.Load() {
		t.Errorf("%v, body closed %v", err, body.done.Load())
	}
}

// A stale holder that stopped in the middle of an upload must not lock the next
// holder out; and its connection's fate is not the next request's.
func TestStalledUploadIsCutOff(t *testing.T) {
	for _, test := range []struct {
		name           string
		http2, wrapped bool
	}{
		{"HTTP/1", false, false}, {"HTTP/2", true, false}, {"HTTP/1, wrapped", false, true}, {"HTTP/2, wrapped", true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			entered, returned := make(chan struct{}), make(chan error, 1)
			server := serve(t, test.http2, test.wrapped, func(w http.ResponseWriter, r *http.Request) {
				if held, _ := seqhttp.FromContext(r.Context()); held.Token() != 41 {
					return
				}
				close(entered)
				_, err := io.ReadAll(r.Body)
				if err == nil {
					err = errors.New("the upload was read to its end")
				}
				_ = r.Body.Close() // which waits for nobody either
				returned <- errors.Join(err, context.Cause(r.Context()))
				w.WriteHeader(http.StatusConflict)
			})
			stalled, stop := io.Pipe()
			sent := make(chan struct{})
			defer func() {
				_ = stop.Close()
				<-sent
			}()
			go func() {
				defer close(sent)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL, stalled)
				if err != nil {
					t.Error(err)
					return
				}
				patient := holder(server, 41)
				patient.Timeout = 0 // or its giving up would end the upload
				response, err := patient.Do(r)
				if err == nil {
					_ = response.Body.Close()
				}
			}()
			if _, err := io.WriteString(stop, "the first half"); err != nil {
				t.Fatal(err)
			}
			<-entered
			for range 3 {
				if status, body := get(t, holder(server, 57), server.URL); status != http.StatusOK {
					t.Fatalf("%d %s", status, body)
				}
			}
			if err := <-returned; !errors.Is(err, api.BadSequencer) || !strings.Contains(err.Error(), "57 was seen") {
				t.Errorf("the older handler ended with %v", err)
			}
		})
	}
}

// What a form leaves on the disk is removed with the request: net/http does that for
// the request that it knows, which is not the one that the handler gets.
func TestFormsLeaveNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	parsed := make(chan error, 1)
	server := serve(t, false, false, func(_ http.ResponseWriter, r *http.Request) { parsed <- r.ParseMultipartForm(1) })
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "large")
	if err == nil {
		_, err = part.Write(make([]byte, 11<<20)) // beyond the memory that net/http takes besides
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	response, err := holder(server, 41).Post(server.URL, w.FormDataContentType(), &form)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if err := <-parsed; err != nil {
		t.Fatal(err)
	}
	server.Close()
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "multipart-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
