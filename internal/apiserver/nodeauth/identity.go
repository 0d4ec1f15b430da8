package nodeauth

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	userPrefix = "system:node:"
	nodesGroup = "system:nodes"
)

// nodeOf gives the node that a user is. Who is in the group of nodes but has no
// node's name is a node without a name, which owns nothing: the roles of the group
// are not for it either.
func nodeOf(who user.Info) (name string, isNode bool) {
	if who == nil || !slices.Contains(who.GetGroups(), nodesGroup) {
		return "", false
	}
	name, _ = strings.CutPrefix(who.GetName(), userPrefix)
	if name == who.GetName() {
		return "", true
	}
	return name, true
}
