package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// runCollector takes the spans of replicas over OTLP, and forgets them. It writes its address, and when the first have come.
func runCollector() error {
	signal.Ignore(os.Interrupt)
	end := inputEnd()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var first sync.Once
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil { // what it has not declared it skips
			return err
		}
		first.Do(func() { fmt.Println(spansCame) })
		return stream.SendMsg(&emptypb.Empty{}) // an answer without a field: all were taken
	}))
	go func() { // ends with standard input
		<-end
		server.Stop()
	}()
	fmt.Println(collectorReady + l.Addr().String())
	return server.Serve(l)
}

// What the collector writes.
const (
	collectorReady = "collector at "
	spansCame      = "spans came"
)
