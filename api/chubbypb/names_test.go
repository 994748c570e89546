package chubbypb_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// Clients that are generated have each method under its name in camel case. One that is named as a method that all of them
// have hides that, or is hidden: a client of grpc-js with a method "close" cannot be closed.
func TestMethodsHideNothing(t *testing.T) {
	taken := map[string][]string{
		"grpc-js":   {"close", "getChannel", "waitForReady", "makeUnaryRequest", "makeClientStreamRequest", "makeServerStreamRequest", "makeBidiStreamRequest"},
		"grpc-java": {"build", "getCallOptions", "getChannel", "getClass", "hashCode", "notify", "notifyAll", "toString", "wait"},
		"grpc-dart": {"$createCall", "$createStreamingCall", "$createUnaryCall"},
		"grpc-net":  {"equals", "getHashCode", "getType", "newInstance", "toString", "withHost"},
	}
	services := chubbypb.File_chubby_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for k := range methods.Len() {
			name := string(methods.Get(k).Name())
			camel := strings.ToLower(name[:1]) + name[1:]
			for library, names := range taken {
				if slices.Contains(names, camel) {
					t.Errorf("%s is %s in %s, as a method of every client is: choose another name", methods.Get(k).FullName(), camel, library)
				}
			}
		}
	}
}
