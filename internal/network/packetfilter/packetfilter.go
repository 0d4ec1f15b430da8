// Package packetfilter counts what the kernel has in a table of the packet filter. Who keeps such a table notices by
// that when somebody else has flushed it: the command nft would read the rules of the whole machine to say so.
package packetfilter

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// attempts is how often a list is read that changes while it is read.
const attempts = 5

// Rules returns how many rules each chain of an IPv4 table has; nothing where there is no table.
func Rules(table string) (map[string]int, error) {
	chains, err := list(unix.NFT_MSG_GETCHAIN, nl.NewRtAttr(unix.NFTA_CHAIN_TABLE, nl.ZeroTerminated(table)))
	if err != nil {
		return nil, fmt.Errorf("list the chains of table %s: %w", table, err)
	}
	count := map[string]int{}
	for _, of := range chains {
		// Chains are listed of all tables.
		if text(of[unix.NFTA_CHAIN_TABLE]) == table {
			count[text(of[unix.NFTA_CHAIN_NAME])] = 0
		}
	}
	if len(count) == 0 {
		return count, nil
	}
	rules, err := list(unix.NFT_MSG_GETRULE, nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(table)))
	if err != nil {
		return nil, fmt.Errorf("list the rules of table %s: %w", table, err)
	}
	for _, of := range rules {
		if text(of[unix.NFTA_RULE_TABLE]) == table {
			count[text(of[unix.NFTA_RULE_CHAIN])]++
		}
	}
	return count, nil
}

// Elements returns how many elements a set of an IPv4 table has. It is an error if there is none of that name.
func Elements(table, set string) (int, error) {
	lists, err := list(unix.NFT_MSG_GETSETELEM,
		nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(table)),
		nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(set)))
	if err != nil {
		return 0, fmt.Errorf("list the elements of set %s in table %s: %w", set, table, err)
	}
	count := 0
	for _, of := range lists {
		elements, err := nl.ParseRouteAttr(of[unix.NFTA_SET_ELEM_LIST_ELEMENTS])
		if err != nil {
			return 0, fmt.Errorf("read the elements of set %s in table %s: %w", set, table, err)
		}
		count += len(elements)
	}
	return count, nil
}

// list asks for the objects that the attributes say, and returns the attributes of each by their types.
func list(message int, which ...*nl.RtAttr) (out []map[uint16][]byte, err error) {
	for range attempts {
		request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, unix.NLM_F_DUMP)
		request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_IPV4, Version: nl.NFNETLINK_V0})
		for _, a := range which {
			request.AddData(a)
		}
		var answers [][]byte
		answers, err = request.Execute(unix.NETLINK_NETFILTER, 0)
		if errors.Is(err, nl.ErrDumpInterrupted) || errors.Is(err, unix.EINTR) {
			continue // Somebody changed rules meanwhile.
		}
		if err != nil {
			return nil, err
		}
		return attributes(answers)
	}
	return nil, err
}

// attributes reads messages, each of which begins with a header of its own.
func attributes(messages [][]byte) ([]map[uint16][]byte, error) {
	out := make([]map[uint16][]byte, 0, len(messages))
	for _, m := range messages {
		if len(m) < nl.SizeofNfgenmsg {
			return nil, fmt.Errorf("a message of %d bytes is too short", len(m))
		}
		list, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, err
		}
		byType := make(map[uint16][]byte, len(list))
		for _, a := range list {
			byType[a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)] = a.Value
		}
		out = append(out, byType)
	}
	return out, nil
}

// text is a name as the kernel says it, with a zero at its end.
func text(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	return nl.BytesToString(raw)
}
