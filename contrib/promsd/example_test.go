package promsd_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/contrib/promsd"
)

// discover keeps a file for the servers in a directory, until ctx ends.
func discover(ctx context.Context, cfg client.Config, file string) error {
	cfg.NoCache = true // others need not wait for this program when they change something
	keeper, err := client.Keep(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = keeper.Close(ctx) }() // if it fails, the session ends with its lease
	d, err := promsd.New(promsd.Config{Sessions: keeper, Jobs: []promsd.Job{{Name: "web", Path: svc, File: file}}})
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// A program keeps a file for Prometheus. "chubbyd dev" starts a cell for it.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Hour)
	defer stop()
	if err := discover(ctx, client.Config{}, "/etc/prometheus/sd/web.json"); err != nil {
		fmt.Println(err)
	}
}

// A configuration that is wrong is refused, by the field.
func ExampleNew() {
	_, err := promsd.New(promsd.Config{Sessions: client.Config{}, Jobs: []promsd.Job{{Name: "web", Path: "/ls/local/web", File: "web.txt"}}})
	fmt.Println(err)
	// Output:
	// promsd: Jobs[0].File is "web.txt"; want a name that ends in .json, without "*", "?" and "[" (InvalidArgument)
}

// A Discovery is an http.Handler: Prometheus asks it for /sd/NAME. Before the cell has answered there is
// no list.
func ExampleDiscovery_ServeHTTP() {
	d, err := promsd.New(promsd.Config{Sessions: client.Config{}, Jobs: []promsd.Job{{Name: "web", Path: "/ls/local/web"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer := httptest.NewRecorder()
	d.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/sd/web", nil))
	fmt.Println(answer.Code, answer.Body)
	// Output:
	// 503 there is no list of job web yet: the cell has not answered
}

// TestExample runs the example.
func TestExample(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.json")
	celltest.Run(t, 3, func(t *testing.T, c *celltest.Cell) {
		w := &world{T: t, cell: c}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- discover(ctx, c.ConfigOf("sd"), file) }()
		w.publish(w.dial("a"), recipe.Endpoint{Address: "a:1"})
		w.expect("announced", file, "a:1")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	})
}
