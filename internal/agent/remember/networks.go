package remember

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/node/peer"
)

// Networks is what a node knows of the networks of all nodes.
type Networks struct {
	Pods  node.PodNetworks
	Nodes []*peer.Node
}

// networkLine is a line of the file: the cluster's network, or a node.
type networkLine struct {
	Pods *node.PodNetworks `json:"pods,omitempty"`
	Node *peer.Node        `json:"node,omitempty"`
}

// ReadNetworks reads the file; nil if there is none. The error says which file is broken, and why.
func ReadNetworks(path string) (*Networks, error) {
	networks := &Networks{}
	there, err := readLines(path, "the networks of nodes", Seal{}, networks.add)
	if err != nil || !there {
		return nil, err
	}
	return networks, nil
}

func (n *Networks) add(raw []byte) (bool, error) {
	var l networkLine
	if err := json.Unmarshal(raw, &l); err != nil {
		return false, err
	}
	switch {
	case l.Pods != nil:
		n.Pods = *l.Pods
	case l.Node != nil:
		if l.Node.Name == "" {
			return false, errors.New("a node without a name")
		}
		n.Nodes = append(n.Nodes, l.Node)
	default:
		return false, nil
	}
	return true, nil
}

// lines are what the file holds of it.
func (n *Networks) lines() iter.Seq[any] {
	return func(yield func(any) bool) {
		if !yield(networkLine{Pods: &n.Pods}) {
			return
		}
		for _, o := range n.Nodes {
			if !yield(networkLine{Node: o}) {
				return
			}
		}
	}
}

// NetworkKeeper writes down what a node knows of the networks of all nodes.
type NetworkKeeper struct{ file file }

// NewNetworkKeeper returns a keeper of the file at that path, and what the file holds, nil if nothing. Now says what it
// is to hold. The error is as NewKeeper's.
func NewNetworkKeeper(path string, now func() *Networks, clk clock.WithTicker) (*NetworkKeeper, *Networks, error) {
	known, err := ReadNetworks(path)
	k := &NetworkKeeper{
		file: file{path: path, what: "the networks of nodes", broken: err != nil, clock: clk, news: make(chan struct{}, 1),
			replace: func() error { return writeLines(path, Seal{}, now().lines()) }},
	}
	return k, known, errors.Join(err, clearUnfinished(path))
}

// Mend implements mend.Part.
func (k *NetworkKeeper) Mend() (mended []string, err error) { return k.file.Mend() }

// Note says that something changed. It does not block.
func (k *NetworkKeeper) Note() { k.file.note() }

// Run keeps the file up to date until ctx ends, and does so a last time then.
func (k *NetworkKeeper) Run(ctx context.Context) error {
	k.file.run(ctx)
	return nil
}
