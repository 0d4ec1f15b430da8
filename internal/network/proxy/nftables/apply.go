package nftables

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"github.com/everynode/everynode/internal/network/packetfilter"
	"github.com/everynode/everynode/internal/network/proxy/ruleset"
)

// table is the packet filter table of this package.
const table = "everynode-services"

// memorySize is how many clients an endpoint remembers.
const memorySize = 65536

// anonymous begins the names of sets that are part of a rule and go with it.
const anonymous = "__"

// Filter is the machine's packet filter.
type Filter struct {
	nft knftables.Interface
	// lister asks the kernel instead of the nft command, which would read all rules in
	// order to list a few names.
	lister knftables.Interface
	// chains are those that should be there, with the number of their rules.
	chains map[string]int
}

// New finds the packet filter. The error says what is missing.
func New() (*Filter, error) {
	nft, err := knftables.New(knftables.IPv4Family, table)
	if err != nil {
		return nil, fmt.Errorf("services need the packet filter nftables and its command nft 1.0.1 or newer: %w", err)
	}
	lister, err := knftables.New(knftables.IPv4Family, table, knftables.UseNetlink)
	if err != nil {
		return nil, fmt.Errorf("list the packet filter's rules: %w", err)
	}
	return &Filter{nft: nft, lister: lister, chains: map[string]int{}}, nil
}

// Leave removes all rules of Services.
func Leave(ctx context.Context) error {
	nft, err := knftables.New(knftables.IPv4Family, table)
	if err != nil {
		return nil //nolint:nilerr // Without the command there are no rules.
	}
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{}) // or there may be none to delete
	tx.Delete(&knftables.Table{})
	if err := nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("remove the packet filter rules of services: %w", err)
	}
	return nil
}

// Change applies a change to the rules that were applied last.
func (f *Filter) Change(ctx context.Context, d ruleset.Delta) error {
	if d.Empty() {
		return nil
	}
	tx := f.nft.NewTransaction()
	addMemories(tx, d.Memories)
	for _, name := range slices.Sorted(maps.Keys(d.Chains)) {
		// A chain that is new was flushed by nobody, and one that should be new may be there.
		tx.Add(&knftables.Chain{Name: name})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Chains)) {
		if !d.New[name] {
			tx.Flush(&knftables.Chain{Name: name})
		}
		addRules(tx, name, d.Chains[name])
	}
	for _, name := range d.GoneChains {
		tx.Flush(&knftables.Chain{Name: name})
	}
	for _, k := range d.Delete {
		e := element(k, "")
		tx.Delete(&e)
	}
	addElements(tx, d.Add)
	remove(tx, d.GoneChains, d.GoneMemories)
	if err := f.nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("change the packet filter rules of services: %w", err)
	}
	for name, rules := range d.Chains {
		f.chains[name] = len(rules)
	}
	for _, name := range d.GoneChains {
		delete(f.chains, name)
	}
	return nil
}

// Replace makes the rules these, whatever they were. Which client goes where is
// remembered, unless the table that is there is another one than ours should be.
func (f *Filter) Replace(ctx context.Context, node ruleset.Node, whole ruleset.Table) error {
	old, err := f.list(ctx)
	if err != nil {
		return err
	}
	base := ruleset.Base(node)
	err = f.nft.Run(ctx, f.replacement(base, whole, old))
	if err != nil {
		tx := f.nft.NewTransaction()
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		fill(tx, base, whole)
		err = f.nft.Run(ctx, tx)
	}
	if err != nil {
		return fmt.Errorf("replace the packet filter rules of services: %w", err)
	}
	f.chains = map[string]int{}
	for _, chains := range []map[string][]string{base, whole.Chains} {
		for name, rules := range chains {
			f.chains[name] = len(rules)
		}
	}
	return nil
}

// list names what there is, by kind; nothing if there is no table.
func (f *Filter) list(ctx context.Context) (map[string][]string, error) {
	// Without a table there are no chains, while to ask for its sets is an error.
	chains, err := f.lister.List(ctx, "chains")
	if err == nil && len(chains) > 0 {
		var all map[string][]string
		if all, err = f.lister.ListAll(ctx); err == nil {
			return all, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list the packet filter rules of services: %w", err)
	}
	return nil, nil
}

// Intact reports whether the chains are those that were applied and have as many rules: others may have emptied
// the packet filter, with its chains or, as "nft flush table" does, without them.
func (f *Filter) Intact(context.Context) (bool, error) {
	chains, err := packetfilter.Rules(table)
	if err != nil {
		return false, fmt.Errorf("look after the packet filter rules of services: %w", err)
	}
	return maps.Equal(chains, f.chains), nil
}

// Empty says whether there are no rules of Services, whoever made them.
func (f *Filter) Empty(ctx context.Context) (bool, error) {
	names, err := f.lister.List(ctx, "chains")
	if err != nil {
		return false, fmt.Errorf("list the packet filter rules of services: %w", err)
	}
	return len(names) == 0, nil
}

// replacement empties everything but what clients are remembered in, and fills it.
func (f *Filter) replacement(base map[string][]string, whole ruleset.Table,
	old map[string][]string) *knftables.Transaction {
	tx := f.nft.NewTransaction()
	tx.Add(&knftables.Table{})
	for _, name := range old["chain"] {
		tx.Flush(&knftables.Chain{Name: name})
	}
	for _, name := range old["map"] {
		if strings.HasPrefix(name, anonymous) {
			continue
		}
		tx.Flush(&knftables.Map{Name: name})
	}
	var chains, memories []string
	for _, name := range old["set"] {
		if _, ours := ruleset.Sets()[name]; ours {
			tx.Flush(&knftables.Set{Name: name})
		} else if strings.HasPrefix(name, anonymous) {
			continue
		} else if _, wanted := whole.Memories[name]; !wanted {
			memories = append(memories, name)
		}
	}
	for _, name := range old["chain"] {
		if base[name] == nil && whole.Chains[name] == nil {
			chains = append(chains, name)
		}
	}
	remove(tx, chains, memories)
	fill(tx, base, whole)
	return tx
}

// fill adds everything to an empty table.
func fill(tx *knftables.Transaction, base map[string][]string, whole ruleset.Table) {
	tx.Add(&knftables.Table{Comment: ptr.To("where Services lead; kept by everynode")})
	verdicts, sets := ruleset.Maps(), ruleset.Sets()
	for _, name := range slices.Sorted(maps.Keys(verdicts)) {
		tx.Add(&knftables.Map{Name: name, Type: verdicts[name] + " : verdict"})
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		tx.Add(&knftables.Set{Name: name, Type: sets[name]})
	}
	addMemories(tx, whole.Memories)
	hooks := ruleset.Hooks()
	all := maps.Clone(base)
	maps.Copy(all, whole.Chains)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		chain := &knftables.Chain{Name: name}
		if h, ok := hooks[name]; ok {
			chain.Type, chain.Hook = ptr.To(knftables.BaseChainType(h.Type)), ptr.To(knftables.BaseChainHook(h.Hook))
			chain.Priority = ptr.To(knftables.BaseChainPriority(h.Priority))
		}
		tx.Add(chain)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		addRules(tx, name, all[name])
	}
	addElements(tx, whole.Elements)
}

func addMemories(tx *knftables.Transaction, memories map[string]int32) {
	for _, name := range slices.Sorted(maps.Keys(memories)) {
		tx.Add(&knftables.Set{
			Name: name, Type: "ipv4_addr", Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag},
			Timeout: ptr.To(time.Duration(memories[name]) * time.Second), Size: ptr.To[uint64](memorySize),
		})
	}
}

func addRules(tx *knftables.Transaction, chain string, rules []string) {
	for _, rule := range rules {
		tx.Add(&knftables.Rule{Chain: chain, Rule: rule})
	}
}

func addElements(tx *knftables.Transaction, elements map[ruleset.Key]string) {
	for _, k := range ruleset.SortedKeys(elements) {
		e := element(k, elements[k])
		tx.Add(&e)
	}
}

func element(k ruleset.Key, verdict string) knftables.Element {
	e := knftables.Element{Key: k.Parts()}
	if _, set := ruleset.Sets()[k.In]; set {
		e.Set = k.In
		return e
	}
	e.Map = k.In
	if verdict != "" {
		e.Value = []string{verdict}
	}
	return e
}

// remove deletes what nothing refers to any more; chains that refer to each other
// are empty by now.
func remove(tx *knftables.Transaction, chains, memories []string) {
	for _, name := range chains {
		tx.Delete(&knftables.Chain{Name: name})
	}
	for _, name := range memories {
		tx.Delete(&knftables.Set{Name: name})
	}
}
