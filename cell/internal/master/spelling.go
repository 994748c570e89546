package master

import (
	"path"
	"strconv"

	"golang.org/x/text/unicode/norm"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// checkSpelling refuses to create a node whose name is not in Unicode's normal form C (NFC). Such a name
// looks like another, so two programs that mean one lock would have two. That happens if one reads the name
// from a file system that decomposes names. Existing nodes keep their names. The master checks its own tree,
// outside the log: replicas need not agree on Unicode tables. Opens and transactions check here; a restore
// does not.
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
