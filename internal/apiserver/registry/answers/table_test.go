package answers_test

import (
	"fmt"
	"strings"
)

// count says how many answers about a resource were the same.
type count struct {
	resource           string
	cases, code, whole int
}

func (c *count) add(code, whole bool) {
	c.cases++
	if code {
		c.code++
	}
	if whole {
		c.whole++
	}
}

func (c count) row() string {
	percent := func(n int) float64 { return 100 * float64(n) / float64(max(c.cases, 1)) }
	return fmt.Sprintf("%-20s %6d %10d %6.1f %% %12d %6.1f %%\n", c.resource, c.cases, c.code, percent(c.code), c.whole, percent(c.whole))
}

type counts []count

// String is the table that is printed, with a row for each resource.
func (c counts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s %6s %19s %21s\n", "RESOURCE", "CASES", "SAME STATUS CODE", "SAME WHOLE ANSWER")
	all := count{resource: "all"}
	for _, one := range c {
		b.WriteString(one.row())
		all.cases, all.code, all.whole = all.cases+one.cases, all.code+one.code, all.whole+one.whole
	}
	b.WriteString(all.row())
	return b.String()
}
