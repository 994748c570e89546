package resolver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// Scheme is that of the targets: "chubby:///ls/foo/svc".
const Scheme = "chubby"

const (
	// Patience is how long nothing was found before gRPC is told so: longer than a cell that is well
	// takes to have another master.
	Patience = 5 * time.Second
	// pause is what follows an answer that ends a look, such as PermissionDenied, before the next.
	pause = 5 * time.Second
)

// New returns what grpc.WithResolvers wants. from is a client.Config, for a session of each connection's
// own, or a *client.Keeper, for one that all connections share with the rest of the program, which closes
// it after the connections. A faulty Config, or a target that is no path, is an error of grpc.NewClient, or,
// as gRPC has it, of the first call.
func New(from client.Sessions) resolver.Builder { return builder{from} }

type builder struct{ from client.Sessions }

// Scheme implements resolver.Builder.
func (b builder) Scheme() string { return Scheme }

// Build implements resolver.Builder.
func (b builder) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	if target.URL.Host != "" {
		return nil, &api.Error{Code: api.InvalidPath, Op: "resolve", Path: target.String(),
			Message: fmt.Sprintf("a target has three slashes before its path, as in %s:///ls/local/svc", Scheme)}
	}
	path, err := api.ParsePath(target.URL.Path)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", target.String(), err)
	}
	if cfg, ok := b.from.(client.Config); ok {
		cell, err := client.Dial(context.Background(), cfg) // it connects to nothing: the Config is checked
		if err != nil {
			return nil, err
		}
		_ = cell.Close() // it never fails
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &watch{from: b.from, path: path.String(), cc: cc, stop: stop, again: make(chan struct{}, 1), found: make(chan struct{})}
	w.running.Go(func() { w.run(ctx) })
	w.running.Go(func() { w.lament(ctx) })
	return w, nil
}

// watch is the resolver of one connection. It has two goroutines, one of which ends when something was
// found, and the session's.
type watch struct {
	from    client.Sessions
	path    string
	cc      resolver.ClientConn
	stop    context.CancelFunc
	running sync.WaitGroup
	again   chan struct{} // capacity 1: gRPC wants something better than there is
	found   chan struct{} // closed when gRPC was told something
	once    sync.Once     // closes it
}

// ResolveNow implements resolver.Resolver. What is known is told at once when it changes; so this
// matters only to one who waits after an error.
func (w *watch) ResolveNow(resolver.ResolveNowOptions) {
	select {
	case w.again <- struct{}{}:
	default:
	}
}

// Close implements resolver.Resolver. It returns when no goroutine runs any more, and the session is
// closed, which takes 5 s at most, unless it is a Keeper's.
func (w *watch) Close() {
	w.stop()
	w.running.Wait()
}

// run follows the service until ctx ends.
func (w *watch) run(ctx context.Context) {
	for {
		err := w.from.Renew(ctx, w.follow)
		if ctx.Err() != nil {
			return
		}
		w.fail(err)
		select {
		case <-w.again:
		default:
		}
		select {
		case <-time.After(pause):
		case <-w.again:
		case <-ctx.Done():
			return
		}
	}
}

// follow tells gRPC of the endpoints, in one session.
func (w *watch) follow(ctx context.Context, c *client.Client) error {
	for list, err := range recipe.WatchEndpoints(ctx, c, w.path) {
		if err != nil {
			return err
		}
		w.once.Do(func() { close(w.found) })
		// What gRPC says to it, that it can do nothing with no addresses, changes nothing here.
		_ = w.cc.UpdateState(stateOf(list))
	}
	return nil
}

// lament tells gRPC that nothing has been found for too long.
func (w *watch) lament(ctx context.Context) {
	select {
	case <-time.After(Patience):
		w.fail(errors.New("the cell has not answered yet"))
	case <-w.found:
	case <-ctx.Done():
	}
}

// fail tells gRPC of an error, which it forgets when it is told of addresses, and does not heed if it has
// some.
func (w *watch) fail(err error) {
	w.cc.ReportError(&api.Error{Code: api.Unavailable, Op: "resolve", Path: w.path, Err: err, Message: "the servers of the service are not known"})
}

// stateOf returns what gRPC is told. The attributes are those of endpoints, not of addresses: connections
// outlive a change of a weight.
func stateOf(list []recipe.Endpoint) resolver.State {
	var s resolver.State
	for _, e := range list {
		address := resolver.Address{Addr: e.Address}
		s.Addresses = append(s.Addresses, address)
		s.Endpoints = append(s.Endpoints, resolver.Endpoint{
			Addresses: []resolver.Address{address}, Attributes: attributes.New(key{}, value{e}),
		})
	}
	return s
}

// key is that of the endpoint among the attributes.
type key struct{}

// value is an endpoint that can be compared, as attributes have it.
type value struct{ recipe.Endpoint }

// Equal implements what package attributes asks for.
func (v value) Equal(o any) bool {
	other, ok := o.(value)
	return ok && v.Endpoint.Equal(other.Endpoint)
}

// EndpointOf returns what an endpoint of gRPC was made from, by its attributes: the weight and metadata are
// for a balancer that uses them.
func EndpointOf(a *attributes.Attributes) (recipe.Endpoint, bool) {
	v, ok := a.Value(key{}).(value)
	return v.Endpoint, ok
}
