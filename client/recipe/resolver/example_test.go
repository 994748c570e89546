package resolver_test

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe/resolver"
)

// A connection goes to the servers that are published in /ls/local/svc.
func ExampleNew() {
	conn, err := grpc.NewClient("chubby:///ls/local/svc",
		grpc.WithResolvers(resolver.New(client.Config{Cell: "local"})),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin":{}}]}`),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
}
