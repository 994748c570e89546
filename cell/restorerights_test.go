package cell_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
)

// Without a session a restore is given up by operators alone: by whom the connection names, or the client where its word is taken.
func TestRestoreIsGivenUpByOperatorsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startRights(t)
		for who, want := range map[string]api.Code{"": api.PermissionDenied, "stranger": api.PermissionDenied, "@all": api.InvalidArgument, "operator": api.NotFound} {
			if _, err := w.chubby.Restore(t.Context(), &pb.RestoreRequest{GiveUp: true, As: who}); api.CodeOf(pb.Error(err)) != want {
				t.Errorf("%q, while there is none: %v, want %s", who, err, want)
			}
		}
		begun := &pb.RestoreRequest{Caller: w.session("operator"), Mutation: w.mutation(), Begin: &pb.RestoreBegin{Cell: "local", CellId: strings.Repeat("0", 32), Level: 1, Counter: 9, Nodes: 1}}
		if _, err := w.chubby.Restore(t.Context(), begun); err != nil {
			t.Fatal(err)
		}
		status, err := pb.NewCellClient(w.conn).Status(t.Context(), &pb.StatusRequest{})
		if err != nil || len(status.GetActs()) != 1 {
			t.Fatalf("%v; under way are %v", err, status.GetActs())
		}
		of := status.GetActs()[0].GetSession()
		if _, err := w.chubby.Restore(t.Context(), &pb.RestoreRequest{GiveUp: true, As: "stranger", Of: of}); api.CodeOf(pb.Error(err)) != api.PermissionDenied {
			t.Errorf("a stranger: %v", err)
		}
		if _, err := w.chubby.Restore(t.Context(), &pb.RestoreRequest{GiveUp: true, As: "operator", Of: of + 1}); api.CodeOf(pb.Error(err)) != api.NotFound {
			t.Errorf("an operator, the restore of another session: %v", err)
		}
		if _, err := w.chubby.Restore(t.Context(), &pb.RestoreRequest{GiveUp: true, As: "operator", Of: of}); err != nil {
			t.Error("an operator:", err)
		}
	})
}
