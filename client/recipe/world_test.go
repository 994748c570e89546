//go:build linux

// A cell needs more of its system than a client does.

package recipe

import (
	"flag"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/recipetest"
)

// rounds is how many random rounds the tests of the recipes make that must never let one too many through, or one
// too early. The default takes some seconds under the race detector.
var rounds = flag.Int("rounds", 60, "random rounds of each recipe's test")

type world struct{ *recipetest.World }

// inWorld runs a test with a cell of three replicas.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.Run(t, 3, func(w *recipetest.World) { test(&world{w}) })
}

// inSmallWorld is inWorld with one replica, for a test in which the master goes on.
func inSmallWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.Run(t, 1, func(w *recipetest.World) { test(&world{w}) })
}

// pass lets virtual time pass.
func pass(d time.Duration) { recipetest.Pass(d) }
