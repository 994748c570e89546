package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/evanw/esbuild/pkg/api"
)

// drawn is what the page says that it has drawn.
type drawn struct {
	Error   string
	Queries []struct {
		Panel, Query string
		Series       int
		Most         float64
	}
	Marks []struct {
		Time  float64
		Title string
	}
	Rows []struct {
		ID    int
		Title string
	}
	Kinds []string // of panels, which the page cannot draw
}

// draw draws a recording.
func draw(ctx context.Context, o options, r recorded) error {
	monitor, err := startPrometheus(ctx, o, drawPort, map[string]any{})
	if err != nil {
		return err
	}
	defer monitor.stop()
	page, stop, err := servePage(o, r)
	if err != nil {
		return err
	}
	defer stop()
	b, err := openBrowser(ctx, o.chromium)
	if err != nil {
		return err
	}
	defer b.close()
	var d drawn
	if err := b.run(chromedp.EmulateViewport(1632, 1000), chromedp.Navigate(page), chromedp.Poll("window.drawn", &d, chromedp.WithPollingTimeout(2*time.Minute))); err != nil {
		return errors.Join(err, b.complaints())
	}
	if d.Error != "" {
		return errors.New(d.Error)
	}
	faults := errors.Join(b.complaints(), d.check())
	if o.pictures != "" { // also with faults: by the pictures they are mended
		faults = errors.Join(faults, b.takePictures(d, o.pictures))
	}
	return faults
}

// check returns what is wrong with the dashboard.
func (d drawn) check() error {
	var faults []error
	for _, k := range d.Kinds {
		faults = append(faults, fmt.Errorf("panels of the kind %q are not drawn", k))
	}
	// One master after the drill, and one after the kill; more: the machine is too busy for five replicas, and one was late.
	for what, want := range map[string]int{" became the master": 2, "a drill began": 1} {
		n := 0
		for _, m := range d.Marks {
			if strings.HasSuffix(m.Title, what) {
				n++
			}
		}
		if n != want {
			faults = append(faults, fmt.Errorf("%d marks say %q, and not %d: %+v", n, what, want, d.Marks))
		}
	}
	for _, q := range d.Queries {
		fmt.Printf("%-34s %3d series, up to %-12.6g %s\n", q.Panel, q.Series, q.Most, q.Query)
		if q.Series == 0 {
			faults = append(faults, fmt.Errorf("%s: no data: %s", q.Panel, q.Query))
		}
	}
	return errors.Join(faults...)
}

// servePage serves the page, what it is made of, and what it draws.
func servePage(o options, r recorded) (address string, stop func(), err error) {
	built := api.Build(api.BuildOptions{
		EntryPoints: []string{"page/page.jsx"}, Outdir: "/", Bundle: true, Format: api.FormatESModule, Target: api.ES2022, JSX: api.JSXTransform,
		Loader: map[string]api.Loader{".woff": api.LoaderDataURL, ".woff2": api.LoaderDataURL, ".svg": api.LoaderDataURL, ".png": api.LoaderDataURL, ".ttf": api.LoaderEmpty},
		Define: map[string]string{"process.env.NODE_ENV": `"production"`, "process.env": "{}", "global": "window"}, LogLevel: api.LogLevelError,
	})
	if len(built.Errors) > 0 {
		return "", nil, fmt.Errorf("esbuild: %s", built.Errors[0].Text)
	}
	files := map[string][]byte{}
	for _, f := range built.OutputFiles {
		files["/"+filepath.Base(f.Path)] = f.Contents
	}
	files["/run.json"], err = json.Marshal(struct {
		recorded
		Prometheus string `json:"prometheus"`
	}{r, "http://" + at(drawPort)})
	if err != nil {
		return "", nil, err
	}
	for name, path := range map[string]string{"/": "page/index.html", "/dashboard.json": filepath.Join(o.root, "deploy/grafana/chubby.json")} {
		if files[name], err = os.ReadFile(path); err != nil {
			return "", nil, err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/public/", http.StripPrefix("/public/build/", http.FileServer(http.Dir("node_modules/@grafana/ui/dist/public"))))
	for name, weight := range map[string]string{"Regular": "400", "Medium": "500"} { // where Grafana's styles look for their font
		mux.HandleFunc("/public/fonts/inter/Inter-"+name+".woff2", func(w http.ResponseWriter, q *http.Request) {
			http.ServeFile(w, q, "node_modules/@fontsource/inter/files/inter-latin-"+weight+"-normal.woff2")
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
		body, ok := files[q.URL.Path]
		if !ok {
			http.NotFound(w, q)
			return
		}
		http.ServeContent(w, q, strings.Replace(q.URL.Path, "/", "x", 1)+map[bool]string{true: ".html"}[q.URL.Path == "/"], time.Time{}, bytes.NewReader(body))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() { // ends with the server, for which stop waits
		defer close(done)
		_ = server.Serve(listener)
	}()
	return "http://" + listener.Addr().String() + "/", func() {
		_ = server.Close()
		<-done
	}, nil
}
