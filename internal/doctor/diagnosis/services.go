package diagnosis

import (
	"time"

	"github.com/everynode/everynode/internal/network/servicenetwork"
)

const (
	// fewAddresses is of how many addresses of Services one must be free.
	fewAddresses = 20
	// longLeaving is for how long a ServiceCIDR that somebody deleted may be there.
	longLeaving = 10 * time.Minute
)

// services looks whether there are addresses for more of them.
func services(f *findings, c *Cluster) {
	remedy := c.Kubectl + " get servicecidrs    # make one more: docs/operations.md, More addresses for Services"
	none := len(c.ServiceCIDRs) > 0
	for _, family := range []string{"IPv4", "IPv6"} {
		free, all := servicenetwork.Room(c.ServiceCIDRs, family == "IPv4", c.Addresses)
		none = none && all == 0
		switch {
		case all == 0:
		case free == 0:
			f.add(Problem, "servicecidrs", remedy,
				"all %d %s addresses of Services are given out: no Service can be made", all, family)
		case free < all/fewAddresses:
			f.add(Warning, "servicecidrs", remedy, "%d of %d %s addresses of Services are left", free, all, family)
		}
	}
	if none {
		f.add(Problem, "servicecidrs", remedy,
			"all ServiceCIDRs are about to go, and none gives out addresses: no Service can be made")
	}
	for _, cidr := range c.ServiceCIDRs {
		if gone := cidr.DeletionTimestamp; gone != nil && c.Now.Sub(gone.Time) > longLeaving {
			f.add(Warning, "servicecidr/"+cidr.Name, c.Kubectl+
				" get ipaddresses    # delete the Services with addresses of it, or make a ServiceCIDR that has them too",
				"it was deleted %s ago, and Services still have addresses of it", long(c.Now.Sub(gone.Time)))
		}
	}
}
