package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/durable"
)

// How long the end of a session may take: while the cell answers, and when it has been silent for a while.
const (
	closeBound    = 3 * time.Second
	farewellBound = 200 * time.Millisecond
)

// refusedFor is how long a command retries while nothing listens at its cell: a cell on one machine restarts in
// about a second.
const refusedFor = 1500 * time.Millisecond

func (g *globals) config(cell string) client.Config {
	cfg := client.Config{
		Cell:       cell,
		Servers:    g.servers,
		As:         g.principal(cell),
		TLS:        g.tlsFiles(cell),
		RefusedFor: refusedFor,
		NoCache:    true, // it reads little, and others' changes would wait for its cache
		Tracer:     g.trace.provider(),
	}
	if g.tokenFile != "" {
		cfg.Credentials = client.TokenFile(g.tokenFile)
	}
	if g.adapt != nil {
		g.adapt(&cfg)
	}
	return cfg
}

// withCell runs f with a cell, without a session, within --timeout.
func (g *globals) withCell(ctx context.Context, cell string, f func(context.Context, *client.Cell) error) error {
	return g.withReport(ctx, cell, api.Path{}, func(ctx context.Context) error {
		c, err := client.Dial(ctx, g.config(cell))
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, c), c.Close())
	})
}

// withSession runs f with its own session, within --timeout.
func (g *globals) withSession(ctx context.Context, cell string, f func(context.Context, *client.Client) error) error {
	return g.withSessionAt(ctx, cell, api.Path{}, f)
}

// withSessionAt is withSession for an operation on one node.
func (g *globals) withSessionAt(ctx context.Context, cell string, path api.Path, f func(context.Context, *client.Client) error) error {
	return g.withReport(ctx, cell, path, func(ctx context.Context) error {
		c, err := client.New(ctx, g.config(cell))
		if err != nil {
			return err
		}
		defer g.closeSession(ctx, c)
		return f(ctx, c)
	})
}

// withTimeout limits an operation on the cell by --timeout.
func (g *globals) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, g.timeout, outOfTime{g.timeout})
}

// withSteps returns a context for several steps, each limited by --timeout; step begins the next.
func (g *globals) withSteps(ctx context.Context) (bound context.Context, step func(), cancel context.CancelFunc) {
	bound, stop := context.WithCancelCause(ctx)
	late := time.AfterFunc(g.timeout, func() { stop(outOfTime{g.timeout}) })
	return bound, func() { late.Reset(g.timeout) }, func() { late.Stop(); stop(nil) }
}

// closeSession ends a session. If that fails, the session ends with its lease; its changes remain.
func (g *globals) closeSession(ctx context.Context, c *client.Client) {
	g.sayFarewell(ctx, c, closeBound, c.Close)
}

// sayFarewell ends a session within a limit, which is short if none of its lease is left. c may be nil.
func (g *globals) sayFarewell(ctx context.Context, c *client.Client, bound time.Duration, end func(context.Context) error) {
	if c == nil || c.Left() <= 0 {
		bound = farewellBound
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(bound, g.timeout))
	defer cancel()
	_ = end(ctx)
}

func (g *globals) withHandle(ctx context.Context, path api.Path, opts client.OpenOptions, f func(context.Context, *client.Handle) error) error {
	return g.withSessionAt(ctx, path.Cell(), path, func(ctx context.Context, c *client.Client) error {
		h, err := c.Open(ctx, path.String(), opts)
		if err != nil {
			return withAdvice(err, path, opts.Create)
		}
		return f(ctx, h)
	})
}

func readNode[T any](
	ctx context.Context, g *globals, p api.Path, f func(*client.Client, context.Context, string) (T, error),
) (answer T, err error) {
	err = g.withSessionAt(ctx, p.Cell(), p, func(ctx context.Context, c *client.Client) (err error) {
		answer, err = f(c, ctx, p.String())
		return err
	})
	return answer, err
}

func (g *globals) readContents(ctx context.Context, p api.Path) (contents []byte, stat api.Stat, err error) {
	stat, err = readNode(ctx, g, p, func(c *client.Client, ctx context.Context, path string) (stat api.Stat, err error) {
		contents, stat, err = c.Get(ctx, path)
		return stat, err
	})
	return contents, stat, err
}

// askCell asks a cell about itself, without a session.
func askCell[T any](ctx context.Context, g *globals, cell string, f func(*client.Cell, context.Context) (T, error)) (answer T, err error) {
	err = g.withCell(ctx, cell, func(ctx context.Context, c *client.Cell) (err error) {
		answer, err = f(c, ctx)
		return err
	})
	return answer, err
}

// askNode asks a cell about a node, without a session.
func askNode[T any](ctx context.Context, g *globals, p api.Path, f func(*client.Cell, context.Context, string) (T, error)) (T, error) {
	return askCell(ctx, g, p.Cell(), func(c *client.Cell, ctx context.Context) (T, error) { return f(c, ctx, p.String()) })
}

type action = func(cmd *cobra.Command, args []string) error

// onPath returns a command's action on a path: its first argument, or the default cell's root.
func (g *globals) onPath(run func(cmd *cobra.Command, p api.Path) error) action {
	return func(cmd *cobra.Command, args []string) error {
		p, err := g.pathOf(args)
		if err != nil {
			return err
		}
		return run(cmd, p)
	}
}

// onCell returns a command's action on a cell: its first argument, or the default one.
func (g *globals) onCell(run func(cmd *cobra.Command, cell string) error) action {
	return func(cmd *cobra.Command, args []string) error {
		cell, err := g.cellOf(args)
		if err != nil {
			return err
		}
		return run(cmd, cell)
	}
}

// withAdvice adds to a NotFound how to create the directory of a new node. If a node may have been created,
// lastError gets that advice.
func withAdvice(err error, path api.Path, create client.Creation) error {
	switch {
	case create == client.Existing:
	case api.CodeOf(err) == api.NotFound:
		return fmt.Errorf("%w; chubbyctl mkdir -p %s does", err, quoted(path.Parent().String()))
	case errors.Is(err, api.Uncertain):
		return creation{err}
	}
	return err
}

type devCell struct {
	Replicas []devReplica `json:"replicas"`
	TLS      struct {
		CA   string `json:"cacert"`
		Cert string `json:"cert"`
		Key  string `json:"key"`
	} `json:"tls"`
}

type devReplica struct {
	Client string `json:"client"`
}

// readDevCell reads dev.json of a directory, and reports whether a dev cell runs there.
func readDevCell(dir string) (devCell, bool) {
	var dev devCell
	text, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err != nil || json.Unmarshal(text, &dev) != nil {
		return devCell{}, false // not running here
	}
	return dev, true
}

func (d devCell) tlsFiles() client.TLSFiles {
	return client.TLSFiles{CA: d.TLS.CA, Cert: d.TLS.Cert, Key: d.TLS.Key}
}

// principal returns the principal to act as: --as; or, in a cell of 'chubbyd dev' in this directory without
// authentication, the user of this machine, so that people see who holds locks. Any other cell would reject
// such a claim.
func (g *globals) principal(cell string) string {
	if g.as != "" || g.tlsFiles(cell) != (client.TLSFiles{}) || g.tokenFile != "" || slices.Contains(client.ConfiguredCells(), cell) {
		return g.as
	}
	dir := filepath.Join(".chubby", cell)
	dev, runs := readDevCell(dir)
	others := slices.ContainsFunc(g.servers, func(address string) bool { return !slices.Contains(dev.Replicas, devReplica{address}) })
	if !runs || others {
		return ""
	}
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return ""
	}
	defer lock.Close()           // only read
	if !durable.IsLocked(lock) { // a killed dev leaves its files
		return ""
	}
	own, err := user.Current()
	if err != nil || !isPrincipal(own.Username) {
		return ""
	}
	return own.Username
}

// isPrincipal reports whether a name can stand for itself in an access control list.
func isPrincipal(name string) bool {
	return name != "" && name != "*" && name[0] != '@' && name[0] != '#' && entryProblem(name) == ""
}

// tlsFiles returns the certificates for a cell: from the flags; or, for a cell without configuration, those of
// 'chubbyd dev --tls' in this directory. For the others the client uses the variables and the file of cells.
func (g *globals) tlsFiles(cell string) client.TLSFiles {
	variables := os.Getenv("CHUBBY_CACERT") + os.Getenv("CHUBBY_CERT") + os.Getenv("CHUBBY_TOKEN_FILE")
	if g.tls != (client.TLSFiles{}) || g.tokenFile != "" || variables != "" || slices.Contains(client.ConfiguredCells(), cell) {
		return g.tls
	}
	dev, _ := readDevCell(filepath.Join(".chubby", cell))
	return dev.tlsFiles()
}

func (g *globals) withCellOf(cmd *cobra.Command, args []string, f func(context.Context, *client.Cell) error) error {
	cell, err := g.cellOf(args)
	if err != nil {
		return err
	}
	return g.withCell(cmd.Context(), cell, f)
}
