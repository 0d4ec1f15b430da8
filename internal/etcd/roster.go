package etcd

import (
	"encoding/json"
	"fmt"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// roster is who the members are, as a database on disk says, and the IDs of those that were
// removed: an ID never comes back.
type roster struct {
	members []Member
	gone    []string
}

// member reads one of the file.
func (r *roster) member(id, value []byte) error {
	m := membership.Member{}
	if err := json.Unmarshal(value, &m); err != nil {
		return fmt.Errorf("read the member %s: %w", id, err)
	}
	r.put(memberOf(&m))
	return nil
}

func (r *roster) put(m Member) {
	r.members = append(slices.DeleteFunc(r.members, func(o Member) bool { return o.ID == m.ID }), m)
}

// changeOfMembers is one, with its number in the log.
type changeOfMembers struct {
	index uint64
	*raftpb.ConfChange
}

// changes are those of the members, in the order of the log.
func changes(entries []*raftpb.Entry, committed uint64) (out []changeOfMembers, err error) {
	for _, e := range entries {
		if e.GetIndex() > committed || e.GetType() != raftpb.EntryConfChange {
			continue
		}
		c := &raftpb.ConfChange{}
		if err := proto.Unmarshal(e.GetData(), c); err != nil {
			return nil, fmt.Errorf("read the change %d of the members: %w", e.GetIndex(), err)
		}
		out = append(out, changeOfMembers{e.GetIndex(), c})
	}
	return out, nil
}

// apply makes a change that the log has and the file has not.
func (r *roster) apply(c *raftpb.ConfChange) error {
	id := types.ID(c.GetNodeId()).String()
	at := slices.IndexFunc(r.members, func(m Member) bool { return m.ID == id })
	switch c.GetType() {
	case raftpb.ConfChangeRemoveNode:
		if at >= 0 {
			r.members = slices.Delete(r.members, at, at+1)
		}
		if !slices.Contains(r.gone, id) {
			r.gone = append(r.gone, id)
		}
	case raftpb.ConfChangeUpdateNode:
		var moved membership.Member
		if err := json.Unmarshal(c.GetContext(), &moved); err != nil {
			return fmt.Errorf("read the address of the member %s: %w", id, err)
		}
		if at >= 0 {
			r.members[at].URL = memberOf(&moved).URL
		}
	case raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode:
		var added membership.ConfigChangeContext
		if err := json.Unmarshal(c.GetContext(), &added); err != nil {
			return fmt.Errorf("read how the member %s was added: %w", id, err)
		}
		switch {
		case slices.Contains(r.gone, id):
		case added.IsPromote && at >= 0:
			r.members[at].Learner = false
		case at < 0:
			r.put(memberOf(&added.Member))
		}
	}
	return nil
}
