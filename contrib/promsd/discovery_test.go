package promsd_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/contrib/promsd"
	"github.com/prometheus/common/model"
)

// The file has the members there are. It is not written when nothing has changed: not by a fail-over, a
// lost session, or a process that is started again.
func TestFollows(t *testing.T) {
	inWorld(t, func(w *world) {
		file := w.file("web.json")
		job := promsd.Job{Name: "web", Path: svc, File: file}
		d, keeper := w.run(job)
		w.expect("no directory", file, "")
		a := w.dial("a")
		one := w.publish(a, recipe.Endpoint{Address: "a:1"})
		w.expect("an announcement", file, "a:1")
		two := w.publish(w.dial("b"), recipe.Endpoint{Address: "b:1"})
		w.expect("another", file, "a:1 b:1")
		before, err := os.Stat(file)
		w.ok(err)
		writes := metric(t, d, "file_writes_total")

		w.cell.FailOver()
		w.expect("a fail-over", file, "a:1 b:1")
		lost := w.session(keeper)
		w.cell.Expire(lost)
		w.expect("a lost session", file, "a:1 b:1")
		if w.session(keeper) == lost {
			t.Error("the session was not lost")
		}
		again, _ := w.run(job)
		w.expect("another process", file, "a:1 b:1")
		after, err := os.Stat(file)
		w.ok(err)
		if !os.SameFile(before, after) {
			t.Error("the file was written, and nothing has changed")
		}
		w.expectMetrics(d, "nothing has changed", map[string]float64{"file_writes_total": writes, "fresh": 1, "targets": 2})
		w.expectMetrics(again, "another process", map[string]float64{"file_writes_total": 0})

		w.ok(one.Withdraw(w.Context()))
		w.expect("one is withdrawn", file, "b:1")
		w.ok(two.Withdraw(w.Context()))
		w.expect("none is left", file, "")
		if text, err := os.ReadFile(file); err != nil || string(text) != "[]\n" {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// While the cell cannot be reached the file stays as it is, and the metric says so.
func TestCutOff(t *testing.T) {
	inWorld(t, func(w *world) {
		file := w.file("web.json")
		a := w.dial("a")
		one := w.publish(a, recipe.Endpoint{Address: "a:1"})
		d, _ := w.run(promsd.Job{Name: "web", Path: svc, File: file})
		w.expect("before", file, "a:1")
		w.expectMetrics(d, "before", map[string]float64{"fresh": 1})
		w.cell.Cut("sd")
		w.ok(one.Withdraw(w.Context()))
		w.publish(a, recipe.Endpoint{Address: "a:2"})
		w.sleep(api.DefaultLease)
		w.expect("in jeopardy", file, "a:1")
		w.expectMetrics(d, "in jeopardy", map[string]float64{"fresh": 0, "targets": 1})
		w.sleep(3 * time.Minute) // lease and grace period have ended
		w.expect("cut off", file, "a:1")
		w.expectMetrics(d, "cut off", map[string]float64{"fresh": 0, "targets": 1})
		if code, text := get(d, "/sd/web"); code != http.StatusOK || targets(t, text) != "a:1" {
			t.Errorf("cut off, over HTTP: %d, %s", code, text)
		}
		w.cell.Heal("sd")
		w.sleep(10 * time.Second)
		w.expect("healed", file, "a:2")
		w.expectMetrics(d, "healed", map[string]float64{"fresh": 1, "targets": 1})
	})
}

// Before the cell has answered, a file of an earlier run stays, and HTTP answers 503.
func TestStartsCutOff(t *testing.T) {
	inWorld(t, func(w *world) {
		file := w.file("web.json")
		w.ok(os.WriteFile(file, []byte(`[{"targets":["old:1"]}]`), 0o600))
		w.ok(os.WriteFile(w.file(".web.json.123.tmp"), []byte(`[{"tar`), 0o600))
		w.publish(w.dial("a"), recipe.Endpoint{Address: "a:1"})
		w.cell.Cut("sd")
		d, _ := w.run(promsd.Job{Name: "web", Path: svc, File: file})
		w.expect("cut off", file, "old:1")
		w.expectMetrics(d, "cut off", map[string]float64{"fresh": 0, "targets": -1})
		for _, path := range []string{"/sd/web", "/readyz"} {
			if code, text := get(d, path); code != http.StatusServiceUnavailable {
				t.Errorf("%s: %d, %s", path, code, text)
			}
		}
		if code, _ := get(d, "/sd/other"); code != http.StatusNotFound {
			t.Errorf("a job that is none: %d", code)
		}
		w.cell.Heal("sd")
		w.expect("healed", file, "a:1")
		if code, text := get(d, "/readyz"); code != http.StatusOK {
			t.Errorf("healed: %d, %s", code, text)
		}
		info, err := os.Stat(file)
		w.ok(err)
		if entries, err := os.ReadDir(w.dir); err != nil || len(entries) != 1 || info.Mode() != 0o600 {
			t.Errorf("%v, %v, %v; want one file, with the mode it had", entries, info.Mode(), err)
		}
	})
}

func get(h http.Handler, path string) (code int, text []byte) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	return answer.Code, answer.Body.Bytes()
}

// Whatever somebody has put into the directory, Prometheus can read the file, and the others are listed.
func TestStrangers(t *testing.T) {
	inWorld(t, func(w *world) {
		file, all := w.file("web.json"), w.file("all.json")
		d, _ := w.run(
			promsd.Job{Name: "web", Path: svc, File: file, Labels: map[string]string{"env": "x", "__scheme__": "https"}},
			promsd.Job{Name: "all", Path: svc, File: all, Services: true})
		c := w.dial("a")
		w.publish(c, recipe.Endpoint{Address: "ok:1", Weight: 3, Metadata: map[string]string{
			"zone": "z1", "a-b": "first", "a.b": "second", "é\n": "\xff", "empty": "", "job": "j"}})
		for name, value := range map[string]string{
			"empty": "", "space": "a b", "url": "http://a/b", "unix": "unix:/run/x", "binary": "\xff\x00", "json": `{"address":`, "other": `{"a":1}`, "line": "a:1\nb:1",
		} {
			_, err := recipe.Announce(w.Context(), c, svc, name, []byte(value))
			w.ok(err)
		}
		_, err := c.Put(w.Context(), svc+"/static", []byte("static:1\n"))
		w.ok(err)
		w.expect("members", file, "ok:1")
		w.expect("services", all, "ok:1 static:1")
		w.expectMetrics(d, "strangers", map[string]float64{"targets": 1, "skipped": 8})
		text, err := os.ReadFile(file)
		w.ok(err)
		labels := parse(t, text)[0].Labels
		if labels["__meta_chubby_host"] == "" {
			t.Error("there is no host")
		}
		delete(labels, "__meta_chubby_host")
		want := model.LabelSet{"env": "x", "__scheme__": "https", "__meta_chubby_job": "web", "__meta_chubby_path": svc, "__meta_chubby_name": "ok:1",
			"__meta_chubby_weight": "3", "__meta_chubby_metadata_zone": "z1", "__meta_chubby_metadata_a_b": "first", "__meta_chubby_metadata___": "\ufffd", "__meta_chubby_metadata_job": "j"}
		if !labels.Equal(want) || labels.Validate() != nil {
			t.Errorf("%v, want %v", labels, want)
		}
	})
}

// What somebody has done to the file is undone, and a write that fails is tried again.
func TestRestored(t *testing.T) {
	inWorld(t, func(w *world) {
		w.ok(os.Mkdir(w.file("sd"), 0o755))
		file := w.file("sd/web.json")
		c := w.dial("a")
		w.publish(c, recipe.Endpoint{Address: "a:1"})
		d, _ := w.run(promsd.Job{Name: "web", Path: svc, File: file})
		w.expect("before", file, "a:1")
		w.ok(os.WriteFile(file, []byte("[]"), 0o600))
		w.expect("emptied", file, "a:1")
		w.ok(os.Rename(w.file("sd"), w.file("away")))
		w.publish(c, recipe.Endpoint{Address: "b:1"})
		settle()
		if metric(t, d, "file_write_failures_total") < 1 {
			t.Error("no write has failed")
		}
		w.ok(os.Rename(w.file("away"), w.file("sd")))
		w.expect("the directory is there again", file, "a:1 b:1")
	})
}

// What is refused is logged, is asked again, and is listed when it is allowed.
func TestRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.dial("a")
		_, err := c.Put(w.Context(), svc, []byte("a file"))
		w.ok(err)
		d, _ := w.run(promsd.Job{Name: "web", Path: svc, File: w.file("web.json")})
		settle()
		if code, text := get(d, "/sd/web"); code != http.StatusServiceUnavailable || !bytes.Contains(text, []byte("NotDirectory")) {
			t.Errorf("%d, %s", code, text)
		}
		if _, err := os.Stat(w.file("web.json")); err == nil {
			t.Error("there is a file")
		}
		w.ok(c.Delete(w.Context(), svc))
		w.publish(c, recipe.Endpoint{Address: "a:1"})
		w.sleep(10 * time.Second)
		w.expect("it is a directory now", w.file("web.json"), "a:1")
	})
}

// A Keeper that was closed ends Run.
func TestKeeperClosed(t *testing.T) {
	inWorld(t, func(w *world) {
		keeper := w.cell.Keep("sd", withoutCache)
		d, err := promsd.New(promsd.Config{Sessions: keeper, Jobs: []promsd.Job{{Name: "web", Path: svc}, {Name: "too", Path: svc}}})
		w.ok(err)
		done := make(chan error, 1)
		go func() { done <- d.Run(w.Context()) }()
		settle()
		w.ok(keeper.Close(w.Context()))
		select {
		case err := <-done:
			if !errors.Is(err, client.Closed) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("Run goes on")
		}
	})
}
