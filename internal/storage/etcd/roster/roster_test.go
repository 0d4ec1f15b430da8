package roster

import (
	"encoding/json"
	"fmt"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Who the members are is told by the file and by what the log has besides, as far as it counts.
func TestRoster(t *testing.T) {
	t.Parallel()
	change := func(kind raftpb.ConfChangeType, id uint64, at string, learner, promote bool) *raftpb.ConfChange {
		m := membership.Member{ID: types.ID(id), RaftAttributes: membership.RaftAttributes{PeerURLs: []string{at},
			IsLearner: learner}}
		text, err := json.Marshal(membership.ConfigChangeContext{Member: m, IsPromote: promote})
		if err != nil {
			t.Fatal(err)
		}
		return &raftpb.ConfChange{Type: kind.Enum(), NodeId: new(id), Context: text}
	}
	var entries []*raftpb.Entry
	for i, c := range []*raftpb.ConfChange{
		change(raftpb.ConfChangeAddNode, 1, "https://1", false, false),
		change(raftpb.ConfChangeAddLearnerNode, 2, "https://2", true, false),
		change(raftpb.ConfChangeAddNode, 2, "https://2", true, true),
		change(raftpb.ConfChangeAddLearnerNode, 3, "https://3", true, false),
		change(raftpb.ConfChangeUpdateNode, 1, "https://moved", false, false),
		change(raftpb.ConfChangeRemoveNode, 2, "", false, false),
		change(raftpb.ConfChangeAddNode, 2, "https://2", false, false), // never: an ID does not come back
		change(raftpb.ConfChangeRemoveNode, 1, "", false, false),       // not known to count
	} {
		data, err := proto.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, &raftpb.Entry{Index: new(uint64(i + 1)), Type: raftpb.EntryConfChange.Enum(),
			Data: data})
	}
	for committed, want := range map[uint64]string{
		0: "[] []", 1: "[{1  https://1 false}] []", 2: "[{1  https://1 false} {2  https://2 true}] []", 3: "[{1  https://1 false} {2  https://2 false}] []",
		7: "[{1  https://moved false} {3  https://3 true}] [2]", 8: "[{3  https://3 true}] [2 1]",
	} {
		var r Roster
		all, err := Changes(entries, committed)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if err := r.Apply(c.ConfChange); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(r.Members, " ", r.Gone); got != want {
			t.Errorf("up to %d: %s, want %s", committed, got, want)
		}
	}
	if _, err := Changes([]*raftpb.Entry{{Index: new(uint64(1)), Type: raftpb.EntryConfChange.Enum(),
		Data: []byte{0xff}}}, 1); err == nil {
		t.Error("what cannot be read is taken")
	}
}
