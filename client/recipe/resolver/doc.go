// Package resolver lets gRPC find the servers of a service in a Chubby cell: those that are published
// in a directory, or the one whose address a file holds (recipe.WatchEndpoints).
//
//	r := resolver.New(client.Config{Cell: "foo"})
//	conn, err := grpc.NewClient("chubby:///ls/foo/svc", grpc.WithResolvers(r), grpc.WithTransportCredentials(creds))
//
// Nothing is registered globally: each connection is given the resolver that it uses. Connections in one
// process may use one New; each of them has a session of its own, which caches, or all share that of a
// client.Keeper.
//
// # When the cell is away
//
// What was found last is used as long as nothing else is known: a fail-over, or the loss of the session,
// changes nothing for those who are connected. When a session is lost there is another (client.Renew),
// and the service is looked at again. What gRPC has before anything was found is an error, once the cell
// has not answered for Patience; calls that wait for the connection to be ready (grpc.WaitForReady) go on
// to wait.
//
// A server that dies is among the addresses until its session is over, at the latest a lease later: gRPC
// avoids it by itself meanwhile, since it does not answer. A primary that was replaced may still be
// called by a client that has not heard of it; servers that must not do its work then check sequencers.
package resolver
