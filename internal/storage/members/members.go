// Package members is what the servers of one cluster, and those who ask about them,
// say to each other over the API's port: who they are, and what a new one is told.
package members

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/everynode/everynode/internal/pki"
)

// Path is where they are: GET lists the servers, POST lets one join, and DELETE of a
// name below takes one off the list.
const Path = "/everynode/v1/servers"

// LeavePath is where POST makes the server that is asked leave.
const LeavePath = Path + "/self/leave"

// Group is whose members may join as servers, besides administrators. Tokens for
// servers are in it.
const Group = "system:bootstrappers:servers"

// Joining is what a server says that wants to join.
type Joining struct {
	// Name is what it wants to be called; Peer is the URL at which the others will reach
	// its database.
	Name, Peer string
	// Port is where it will serve the API.
	Port int
	// Version is its Kubernetes API's.
	Version string
	// Data is the version of the data that it writes, 0 if it is of before that was said.
	Data int
	// Check asks whether it may, and changes nothing about who belongs to the cluster.
	Check bool
}

// Validate says what is wrong with the request itself.
func (j Joining) Validate() error {
	if problems := validation.IsDNS1123Label(j.Name); len(problems) > 0 || j.Name == "self" {
		return fmt.Errorf(
			"%q cannot be the name of a server, which is like that of a machine; give another with --server-name", j.Name,
		)
	}
	return nil
}

// Welcome is what it is told. After a check there are only Known and Data.
type Welcome struct {
	// Known are the servers, with the new one.
	Known []Known
	// Data is the version of the data that the servers write, 0 if they are of before that was said.
	Data int
	Keys pki.SharedKeys
	Settings
	// StoredKeys is the file of the keys of stored Secrets; empty for none. Encryption is
	// the configuration that an operator has made instead.
	StoredKeys, Encryption []byte
}

// Known is a server as it is known to the others' databases.
type Known struct{ ID, Name, URL string }

// Settings are what all servers of a cluster must be told alike.
type Settings struct {
	ServiceCIDR, ClusterCIDR string
	NodeMaskSize             int
	// Prefix begins all keys in the database.
	Prefix string
}

// Server is one of the servers, as it says itself.
type Server struct {
	ID, Name, URL, Version string
	// Problem is why it could not be asked; all below is then unknown.
	Problem string `json:",omitempty"`
	Learner bool
	// Leads tells that it leads the databases.
	Leads bool
	// Applied is the number of the last change that it has.
	Applied uint64
	// Bytes is the size of its database.
	Bytes int64
	// Loops tells that its control loops work.
	Loops bool
	// GivesWay says why its control loops do not work, where those of a server that knows more are to; "" for others.
	GivesWay string `json:",omitempty"`
	// Serving tells that it serves the API.
	Serving bool
	// Differs tells that its database holds something else than others': Corrupt or Disputed; empty if nothing is
	// known of that.
	Differs string `json:",omitempty"`
	// PeerStanding is how it stands with the authority of the servers' databases.
	pki.PeerStanding
}

const (
	// Corrupt is a database that holds something else than a majority of them.
	Corrupt = "Corrupt"
	// Disputed are databases that hold different things while no majority agrees.
	Disputed = "Disputed"
)

// List is the answer to who there is.
type List struct {
	// Asked is the name of the server that was asked.
	Asked   string
	Servers []Server
}

// CheckVersion reports whether a server of that version may join one of ours: not an
// older one, which would not understand what is stored, and no newer than by one.
func CheckVersion(joining, ours string) error {
	theirs, err := version.ParseGeneric(joining)
	if err != nil {
		return fmt.Errorf("the version %q of the server that wants to join is none: %w", joining, err)
	}
	here, err := version.ParseGeneric(ours)
	if err != nil {
		return fmt.Errorf("the version %q of this server is none: %w", ours, err)
	}
	switch {
	case theirs.Major() < here.Major() || theirs.Major() == here.Major() && theirs.Minor() < here.Minor():
		return fmt.Errorf("its version %s is too old for this cluster, which has %s; install that one there", joining, ours)
	case theirs.Major() > here.Major() || theirs.Minor() > here.Minor()+1:
		return fmt.Errorf(
			"its version %s is too new for this cluster, which has %s; upgrade the servers that are there first", joining, ours,
		)
	}
	return nil
}

// CheckData reports whether a server whose program writes data of one version may join servers
// whose programs write another: each must be able to read what the others have stored.
func CheckData(joining, ours int) error {
	switch joining, ours := max(joining, firstData), max(ours, firstData); {
	case joining < ours:
		return fmt.Errorf(
			"its program is too old: it knows data up to version %d, and this cluster's has version %d; install the version "+
				"there that the others have",
			joining, ours,
		)
	case joining > ours:
		return fmt.Errorf(
			"its program is too new: it writes data of version %d, and this cluster's has version %d; upgrade the servers "+
				"that are there first",
			joining, ours,
		)
	}
	return nil
}

// firstData is the version of the data of those who say nothing of it.
const firstData = 1
