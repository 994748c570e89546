package backupstore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"
)

// startServer starts a server that speaks S3 (versitygw, above a directory) and returns the bucket "backups" of it.
func startServer(t *testing.T) string {
	t.Helper()
	found, err := exec.Command("go", "tool", "-modfile=../../tools/s3/go.mod", "-n", "versitygw").Output()
	if err != nil {
		t.Fatal("versitygw cannot be built:", err)
	}
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := l.Addr().String()
	_ = l.Close()
	root := t.TempDir()
	server := exec.Command(strings.TrimSpace(string(found)), "-a", "someone", "-s", "correct horse", "-p", address, "posix", root)
	out := must(server.StdoutPipe())(t)
	noErr(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "listening on") {
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // until Wait closes it
	t.Setenv("AWS_ACCESS_KEY_ID", "someone")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "correct horse")
	name := "s3://backups/cells?region=us-east-1&endpoint=http://" + address
	b := must(bucketAt(name))(t)
	if err := b.client.MakeBucket(t.Context(), "backups", minio.MakeBucketOptions{}); err != nil { // it tries again
		t.Fatal(err)
	}
	return name
}

// writes writes a text.
func writes(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func contents(t *testing.T, p Place, name string) []byte {
	t.Helper()
	r := must(p.Open(t.Context(), name))(t)
	defer r.Close()
	text := must(io.ReadAll(r))(t)
	return text
}

// Both kinds of places keep what they are given, whole or not at all, and replace nothing.
func TestPlaces(t *testing.T) {
	for kind, at := range map[string]string{"directory": t.TempDir(), "bucket": startServer(t)} {
		t.Run(kind, func(t *testing.T) {
			ctx := t.Context()
			p, err := At(at)
			if err != nil || p.String() != at {
				t.Fatal(p, err)
			}
			are := func(want ...string) {
				t.Helper()
				got, err := p.List(ctx)
				if slices.Sort(got); err != nil || !slices.Equal(got, want) {
					t.Errorf("there are %q, %v; want %q", got, err, want)
				}
			}
			are()
			for _, name := range []string{"b", "a"} {
				noErr(t, p.Create(ctx, name, writes("contents of "+name)))
			}
			are("a", "b")
			if got := contents(t, p, "a"); string(got) != "contents of a" {
				t.Errorf("%q", got)
			}
			if err := p.Create(ctx, "a", writes("other")); !errors.Is(err, fs.ErrExist) {
				t.Errorf("a name that is taken: %v", err)
			}
			if got := contents(t, p, "a"); string(got) != "contents of a" {
				t.Errorf("it was replaced by %q", got)
			}

			large := bytes.Repeat([]byte("0123456789abcdef"), (2*partSize+1000)/16)
			failure := errors.New("the disk failed")
			for _, size := range []int{0, 10, len(large)} {
				if err := p.Create(ctx, "half", func(w io.Writer) error {
					_, _ = w.Write(large[:size])
					return failure
				}); !errors.Is(err, failure) {
					t.Errorf("%d bytes: %v", size, err)
				}
			}
			are("a", "b")
			if err := p.Create(ctx, "large", func(w io.Writer) error {
				for rest := large; len(rest) > 0; rest = rest[min(len(rest), 100_000):] {
					if _, err := w.Write(rest[:min(len(rest), 100_000)]); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(contents(t, p, "large"), large) {
				t.Error("a large file is read as another")
			}
			ended, end := context.WithCancel(ctx)
			if err := p.Create(ended, "late", func(w io.Writer) error {
				end()
				_, err := w.Write(large)
				return err
			}); err == nil {
				t.Error("a file was made after the end of the context")
			}

			for range 2 {
				if err := p.Remove(ctx, "a"); err != nil {
					t.Error(err)
				}
			}
			are("b", "large")
			if _, err := p.Open(ctx, "a"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file that was removed: %v", err)
			}
			one, name, err := FileAt(strings.Replace(at, "/cells", "/cells/b", 1))
			if kind == "directory" {
				one, name, err = FileAt(at + "/b")
			}
			if err != nil || name != "b" || string(contents(t, one, name)) != "contents of b" {
				t.Errorf("%v, %q, %v", one, name, err)
			}
		})
	}
}

// Of many who write the same name one succeeds, and its contents stay: small files, and those that are sent in parts.
func TestOneOfManyWrites(t *testing.T) {
	for kind, at := range map[string]string{"directory": t.TempDir(), "bucket": startServer(t)} {
		p := must(At(at))(t)
		for _, size := range []int{0, partSize} {
			filler := strings.Repeat(".", size)
			name := fmt.Sprint("x", size)
			errs := make([]error, 4)
			var done sync.WaitGroup
			for i := range errs {
				done.Go(func() { errs[i] = p.Create(t.Context(), name, writes(fmt.Sprint("of ", i, filler))) })
			}
			done.Wait()
			won := -1
			for i, err := range errs {
				switch {
				case err == nil && won >= 0:
					t.Errorf("%s, %d bytes: %d and %d have written", kind, size, won, i)
				case err == nil:
					won = i
				case !errors.Is(err, fs.ErrExist):
					t.Errorf("%s, %d bytes: %v", kind, size, err)
				}
			}
			if got := contents(t, p, name); string(got) != fmt.Sprint("of ", won, filler) {
				t.Errorf("%s: the contents are %.10q, written by %d", kind, got, won)
			}
		}
		if b, ok := p.(*Bucket); ok {
			for left := range b.client.ListIncompleteUploads(t.Context(), b.name, "", true) {
				t.Errorf("parts of %s are left, %v", left.Key, left.Err)
			}
		}
	}
}

// An error says what is wrong with a place, without a word that may be a secret.
func TestPlacesThatAreNot(t *testing.T) {
	good := startServer(t)
	for text, want := range map[string]string{
		"backups":                           "neither the absolute path of a directory nor s3://",
		"s3://":                             "is no bucket",
		"s3://key:secret@bucket/x":          `"s3://...@bucket/x" is no bucket`,
		"s3://b?endpoint=ftp://h":           "the endpoint is no URL",
		"s3://b?endpoint=https://h/path":    "the endpoint is no URL",
		"s3://b?endpoint=http://u:secret@h": "the endpoint is no URL",
		"s3://b?regoin=eu":                  "has no option regoin",
	} {
		if _, err := At(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	for _, text := range []string{"", "dir/", "s3://bucket", "s3://bucket/", "s3://bucket/x/?region=eu", ".", "a/.."} {
		if p, name, err := FileAt(text); err == nil {
			t.Errorf("the file %q is %q in %v", text, name, p)
		}
	}
	other := must(At(strings.Replace(good, "backups", "nosuch", 1)))(t)
	if _, err := other.List(t.Context()); err == nil || !strings.Contains(err.Error(), "bucket does not exist") {
		t.Errorf("a bucket that is not there: %v", err)
	}
	if err := other.Create(t.Context(), "x", writes("y")); err == nil {
		t.Error("a file was made in a bucket that is not there")
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong battery")
	refused := must(At(good))(t)
	if err := refused.Create(t.Context(), "x", writes("y")); err == nil || !strings.Contains(err.Error(), "the server refuses these credentials") || strings.Contains(err.Error(), "battery") {
		t.Errorf("a wrong key: %v", err)
	}
	gone := Directory(filepath.Join(t.TempDir(), "gone"))
	if err := gone.Create(t.Context(), "x", writes("y")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := gone.List(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A directory cannot be opened as a backup.
func TestDirectoryIsReadable(t *testing.T) {
	d := Directory(t.TempDir())
	noErr(t, os.Mkdir(filepath.Join(string(d), "sub"), 0o700))
	if _, err := d.Open(t.Context(), "sub"); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Error(err)
	}
}

// Of a bucket to which backups go in the clear is said that they do, and which server it is.
func TestWarningOfBucketsInTheClear(t *testing.T) {
	for text, want := range map[string]string{
		"s3://b":                                      "",
		"s3://b?endpoint=https://s3.example.org":      "",
		"s3://b?endpoint=http://localhost:9000":       "",
		"s3://b?endpoint=http://127.0.0.1:9000":       "",
		"s3://b?endpoint=http://[::1]:9000":           "",
		"/var/lib/chubby/backups":                     "",
		"s3://b?endpoint=http://s3.example.org":       "go to s3.example.org",
		"s3://b?endpoint=http://minio:9000":           "go to minio:9000",
		"s3://b/x?region=eu&endpoint=http://10.0.0.7": "go to 10.0.0.7",
		"s3://b?endpoint=http://127.0.0.1.nip.io":     "go to 127.0.0.1.nip.io",
	} {
		p := must(At(text))(t)
		if got := Warning(p); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if Warning(nil) != "" {
		t.Error("no place is warned of")
	}
}

// losing is a way to a server on which answers are lost: the server does what it is asked for, and nobody is told.
type losing struct {
	to   http.Handler
	lose atomic.Int64 // so many of the next answers to what makes an object
	lost atomic.Int64
}

func (l *losing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	makes := r.Method == http.MethodPut && !query.Has("partNumber") || r.Method == http.MethodPost && query.Has("uploadId")
	if !makes || l.lose.Add(-1) < 0 {
		l.to.ServeHTTP(w, r)
		return
	}
	l.to.ServeHTTP(httptest.NewRecorder(), r)
	l.lost.Add(1)
	panic(http.ErrAbortHandler) // which closes the connection
}

// A server stores a backup, and its answer is lost: at the first try, so that the second is refused because of it, or at every
// try. The file was made all the same, and once. A file that another upload made does not count as this one's.
func TestAnswersOfABucketAreLost(t *testing.T) {
	text := startServer(t)
	at, server, _ := strings.Cut(text, "endpoint=")
	to := must(url.Parse(server))(t)
	way := &losing{to: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // which was signed
	}}}
	proxy := httptest.NewServer(way)
	defer proxy.Close()
	p := must(At(at + "endpoint=" + proxy.URL))(t)
	for _, size := range []int{0, partSize} {
		for _, lost := range []int64{1, 100} {
			name := fmt.Sprintf("x-%d-%d", size, lost)
			filler := strings.Repeat(".", size)
			way.lost.Store(0)
			way.lose.Store(lost)
			err := p.Create(t.Context(), name, writes("the first"+filler))
			way.lose.Store(0)
			if n := way.lost.Load(); err != nil || n == 0 || lost == 1 && n != 1 {
				t.Errorf("%s, of which %d answers were lost: %v", name, n, err)
			}
			way.lose.Store(lost)
			if err := p.Create(t.Context(), name, writes("the second"+filler)); !errors.Is(err, fs.ErrExist) {
				t.Errorf("%s again: %v", name, err)
			}
			way.lose.Store(0)
			if got := contents(t, p, name); string(got) != "the first"+filler {
				t.Errorf("%s is %.20q", name, got)
			}
		}
	}
	if names, err := p.List(t.Context()); err != nil || len(names) != 4 {
		t.Errorf("there are %q, %v", names, err)
	}
}

// must returns what a call returned that had to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noErr(t, err)
		return value
	}
}

// noErr ends the test if there is an error.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
