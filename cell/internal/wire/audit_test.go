package wire

import (
	"testing"

	pb "github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc"
)

// Every RPC is known to be an act or not: a new one has to be thought of.
func TestEveryCallIsAudited(t *testing.T) {
	n := 0
	for _, service := range []grpc.ServiceDesc{pb.Chubby_ServiceDesc, pb.Cell_ServiceDesc} {
		var names []string
		for _, m := range service.Methods {
			names = append(names, m.MethodName)
		}
		for _, s := range service.Streams {
			names = append(names, s.StreamName)
		}
		for _, name := range names {
			if n++; auditOf("/"+service.ServiceName+"/"+name) == unknownCall {
				t.Errorf("%s is not in auditOf: is it for operators, or does it change who may do what?", name)
			}
		}
	}
	if n < 30 {
		t.Errorf("%d calls", n)
	}
}
