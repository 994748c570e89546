package master

import (
	"path"
	"strconv"

	"golang.org/x/text/unicode/norm"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// checkSpelling refuses to create a node whose name is not in Unicode's normal form C (NFC): another name looks the same, so two
// programs that mean one lock would have two, as where one takes the name from a file system that decomposes names. A node that is
// there is opened, written and deleted by whatever name it has. The tree is that of the master, and not of the log's turn: replicas
// need not agree on the tables of Unicode. Every way to create a node leads here, by an Open or a transaction; a restore, which brings
// what was there, does not.
func checkSpelling(state *raftfsm.State, name api.Name, create api.Create) *api.Error {
	own := path.Base(string(name))
	if create == api.MustExist || !state.WantsNFC() || norm.NFC.IsNormalString(own) {
		return nil
	}
	if _, there := state.Tree.Get(name); there {
		return nil
	}
	return api.Errorf(api.InvalidPath, "the name %s is not in Unicode's normal form C (NFC), and looks like another: write it as %s; names that are there already stay as they are",
		strconv.QuoteToASCII(own), strconv.QuoteToASCII(norm.NFC.String(own)))
}
