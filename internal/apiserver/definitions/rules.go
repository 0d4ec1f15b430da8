package definitions

import (
	"fmt"
	"math"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// rules say more of fields than their types do, by path: a[] is an item of a list,
// a{} a value of a map.
type rules map[string][]rule

// rule changes the schema of a field.
type rule func(*props)

func (r rules) addTo(schema *props) error {
	for path, all := range r {
		if err := change(schema, strings.Split(path, "."), all); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func change(at *props, path []string, all []rule) error {
	if len(path) == 0 {
		for _, r := range all {
			r(at)
		}
		return nil
	}
	name, item := strings.CutSuffix(path[0], "[]")
	name, value := strings.CutSuffix(name, "{}")
	field, ok := at.Properties[name]
	if !ok {
		return fmt.Errorf("there is no field %s", name)
	}
	// The schemas of two fields of one type are different values already.
	inner := &field
	switch {
	case item && field.Items != nil:
		inner = field.Items.Schema
	case value && field.AdditionalProperties != nil:
		inner = field.AdditionalProperties.Schema
	case item || value:
		return fmt.Errorf("%s has no items", name)
	}
	err := change(inner, path[1:], all)
	at.Properties[name] = field
	return err
}

// cel refuses what the expression is false for.
func cel(expression, message string) rule {
	return func(p *props) {
		p.XValidations = append(p.XValidations, apiextensionsv1.ValidationRule{Rule: expression, Message: message})
	}
}

func maxItems(n int64) rule      { return func(p *props) { p.MaxItems = ptr.To(n) } }
func maxProperties(n int64) rule { return func(p *props) { p.MaxProperties = ptr.To(n) } }
func maxLength(n int64) rule     { return func(p *props) { p.MaxLength = ptr.To(n) } }
func pattern(text string) rule   { return func(p *props) { p.Pattern = text } }
func notEmpty(p *props)          { p.MinLength = ptr.To[int64](1) }

// between bounds a number; Go's types bound those without a limit.
func between(least, most float64) rule {
	return func(p *props) { p.Minimum, p.Maximum = &least, &most }
}

// notNegative is for numbers of 64 bits: their greatest has no exact form as the float that a bound is, and an API
// server refuses every object then.
func notNegative(p *props) { p.Minimum = ptr.To(0.0) }

func atLeast(least float64) rule { return between(least, math.MaxInt32) }

// oneOf takes the values; the empty one is the default, as for the built-in kinds.
func oneOf(values ...string) rule {
	return func(p *props) {
		p.Enum = nil
		for _, v := range values {
			p.Enum = append(p.Enum, apiextensionsv1.JSON{Raw: fmt.Appendf(nil, "%q", v)})
		}
	}
}

// orEmpty lets the empty value stand for the default.
func orEmpty(p *props) {
	p.Enum = slices.Insert(p.Enum, 0, apiextensionsv1.JSON{Raw: []byte(`""`)})
}

// someOf is a number of nodes of at least least, or a percentage from that to 100%.
func someOf(least int) []rule {
	text := `^0*(0|[1-9]|[1-9][0-9]|100)%$`
	if least > 0 {
		text = `^0*([1-9]|[1-9][0-9]|100)%$`
	}
	return []rule{atLeast(float64(least)), pattern(text)}
}

const (
	labelValue = `^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	labelKey   = `matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?` +
		`[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')`
	keyMessage = "must be the key of a label, such as topology.kubernetes.io/zone"
	keyLength  = 253 + 1 + 63
)

// aLabel is the key of a label, or nothing where that is good.
func aLabel(or string) []rule {
	return []rule{maxLength(keyLength), cel(or+"(self.indexOf('/') <= 253 && self."+labelKey+")", keyMessage)}
}

// selects adds the rules of a selector.
func (r rules) selects(path string) {
	r[path+".matchLabels"] = []rule{
		maxProperties(rolloutpolicy.MaxTerms),
		cel("self.all(k, k.size() <= 317 && k.indexOf('/') <= 253 && k."+labelKey+")", "each key "+keyMessage),
	}
	r[path+".matchLabels{}"] = []rule{maxLength(63), pattern(labelValue)}
	r[path+".matchExpressions"] = []rule{maxItems(rolloutpolicy.MaxTerms)}
	r[path+".matchExpressions[]"] = []rule{
		cel(
			"self.operator in ['Exists', 'DoesNotExist'] ? !has(self.values) || self.values.size() == 0 : has(self.values) && "+
				"self.values.size() > 0",
			"In and NotIn need values; Exists and DoesNotExist take none",
		),
	}
	r[path+".matchExpressions[].key"] = aLabel("")
	r[path+".matchExpressions[].operator"] = []rule{oneOf("In", "NotIn", "Exists", "DoesNotExist")}
	r[path+".matchExpressions[].values"] = []rule{maxItems(rolloutpolicy.MaxValues)}
	r[path+".matchExpressions[].values[]"] = []rule{maxLength(63), pattern(labelValue)}
}

// notNegativeTime is a length of time, or nothing.
func notNegativeTime(p *props) {
	cel(
		"self == '' || duration(self) >= duration('0s')", "must be a length of time such as 90s or 1h30m, and not negative",
	)(p)
}

// objectName is what a DNS subdomain looks like.
const objectName = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`

// conditions adds the rules of a status' conditions.
func (r rules) conditions() rules {
	r["status.conditions[].type"] = []rule{
		maxLength(316),
		pattern(
			`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`,
		),
	}
	r["status.conditions[].status"] = []rule{oneOf("True", "False", "Unknown")}
	r["status.conditions[].reason"] = []rule{maxLength(1024), pattern(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)}
	r["status.conditions[].message"] = []rule{maxLength(32768)}
	r["status.conditions[].observedGeneration"] = []rule{notNegative}
	return r
}

func policyRules() rules {
	const (
		all = "has(a.each) && a.each != '' || has(a.percent) && a.percent == 100 || has(a.nodes) && " +
			"(!has(a.nodes.matchLabels) || a.nodes.matchLabels.size() == 0) && (!has(a.nodes.matchExpressions) || " +
			"a.nodes.matchExpressions.size() == 0)"
		time = `([01][0-9]|2[0-3]):[0-5][0-9]`
	)
	r := rules{
		"spec.waves": {
			maxItems(rolloutpolicy.MaxWaves),
			cel("self.all(a, self.exists_one(b, b.name == a.name))", "no two waves have one name"),
			cel(
				"self.all(a, !("+all+") || a.name == self[self.size() - 1].name)",
				"a wave gets no node when one before it takes all (each, percent 100 or an empty nodes)",
			),
			cel(
				"self.all(a, !has(a.nodes) || self.exists_one(b, has(b.nodes) && b.nodes == a.nodes))",
				"a wave gets no node when one before it takes the same nodes",
			),
		},
		"spec.waves[]": {
			cel(
				"[has(self.nodes), has(self.count), has(self.percent), has(self.each) && self.each != ''].exists_one(given, given)",
				"must have exactly one of nodes, count, percent and each",
			),
			cel("!has(self.ramp) || has(self.nodes)", "ramp is for waves with nodes; an empty nodes takes all"),
			cel(
				"!has(self.spreadBy) || self.spreadBy == '' || has(self.count) || has(self.percent)",
				"spreadBy is for waves with count or percent",
			),
		},
		"spec.waves[].name": {
			maxLength(63), pattern(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`),
			cel("self != '"+rolloutpolicy.RestName+"'", "is the name of the last wave, which takes all other nodes"),
		},
		"spec.waves[].count":            {atLeast(1)},
		"spec.waves[].percent":          {between(1, 100)},
		"spec.waves[].ramp.from":        {atLeast(1)},
		"spec.waves[].ramp.factor":      {between(2, rolloutpolicy.MaxFactor)},
		"spec.waves[].each":             aLabel("self == '' || "),
		"spec.waves[].spreadBy":         aLabel("self == '' || "),
		"spec.waves[].maxUnavailable":   someOf(1),
		"spec.waves[].soak":             {notNegativeTime},
		"spec.waves[].approval":         {orEmpty},
		"spec.domains":                  {maxItems(rolloutpolicy.MaxDomains)},
		"spec.domains[].key":            aLabel(""),
		"spec.domains[].maxUnavailable": someOf(1),
		"spec.failure.max":              someOf(0),
		"spec.failure.min":              {atLeast(1)},
		"spec.failure.restarts":         {atLeast(1)},
		"spec.failure.startDeadline": {cel(
			"self == '' || duration(self) > duration('0s')", "must be a length of time such as 90s or 1h30m, and greater than 0",
		)},
		"spec.failure.then":        {orEmpty},
		"spec.nodeFaults.max":      someOf(0),
		"spec.windows":             {maxItems(rolloutpolicy.MaxWindows)},
		"spec.windows[].days":      {maxItems(7)},
		"spec.windows[].days[]":    {oneOf("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")},
		"spec.windows[].from":      {pattern("^" + time + "$")},
		"spec.windows[].to":        {pattern("^(" + time + "|24:00)$")},
		"spec.pace.nodesPerMinute": {atLeast(1)},

		"spec.images":                  {orEmpty},
		"spec.content.configMaps":      {orEmpty},
		"spec.content.secrets":         {orEmpty},
		"spec.content.apply":           {orEmpty},
		"spec.content.settle":          {notNegativeTime},
		"spec.content.exclude.names":   {maxItems(rolloutpolicy.MaxExcluded)},
		"spec.content.exclude.names[]": {maxLength(253), pattern(objectName)},
	}
	r.selects("spec.selector")
	r.selects("spec.content.exclude.selector")
	r.selects("spec.waves[].nodes")
	return r.conditions()
}

// digest wants that of a template, and says where it is to be found.
func digest(p *props) {
	p.Required = slices.DeleteFunc(p.Required, func(name string) bool { return name == "digest" })
	field := p.Properties["digest"]
	field.MaxLength = ptr.To(int64(len("sha256:") + 64))
	p.Properties["digest"] = field
	cel(
		"has(self.digest) && self.digest.matches('"+rolloutpolicy.DigestPattern+"')", "digest "+rolloutpolicy.DigestMessage,
	)(p)
}

func rolloutRules() rules {
	return rules{
		"spec.approved":          {digest},
		"spec.approved.revision": {notEmpty},
		"spec.approved.step":     {notEmpty},
		"spec.approved.change":   {between(0, rolloutpolicy.MaxChange)},
		"spec.retry":             {digest},
		"spec.retry.revision":    {notEmpty},
		"spec.retry.count":       {atLeast(1)},
		"spec.abort":             {digest},
		"spec.abort.revision":    {notEmpty},
	}.conditions()
}
