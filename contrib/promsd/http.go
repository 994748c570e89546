package promsd

import (
	"fmt"
	"net/http"
)

// ServeHTTP answers
//
//   - GET /sd/NAME with the list of the Job of that name, for http_sd_configs: 503 before the cell has
//     answered for the first time, at which Prometheus keeps what it has; afterwards the newest list,
//     also while the cell cannot be reached;
//   - GET /readyz with 200 once there is a list of each Job, 503 before.
func (d *Discovery) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

func (d *Discovery) routes() *http.ServeMux {
	mux := http.NewServeMux()
	byName := map[string]*list{}
	for _, l := range d.lists {
		byName[l.job.Name] = l
	}
	mux.HandleFunc("GET /sd/{name}", func(w http.ResponseWriter, r *http.Request) {
		l := byName[r.PathValue("name")]
		if l == nil {
			http.Error(w, "there is no job of that name", http.StatusNotFound)
			return
		}
		l.serve(w)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		for _, l := range d.lists {
			if s := l.state(); s.newest == nil {
				http.Error(w, l.missing(s), http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

func (l *list) serve(w http.ResponseWriter) {
	now := l.state()
	if now.newest == nil {
		http.Error(w, l.missing(now), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(now.newest.text) // the client may have gone
}

// missing says why there is no list.
func (l *list) missing(s state) string {
	if s.refusal != nil {
		return fmt.Sprintf("there is no list of job %s: %v", l.job.Name, s.refusal)
	}
	return fmt.Sprintf("there is no list of job %s yet: the cell has not answered", l.job.Name)
}
