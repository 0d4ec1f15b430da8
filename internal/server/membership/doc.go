// Package membership is about which servers are one cluster. A server keeps in a file of its data folder that it is one
// of several (File). It becomes one when it joins (Join), and when another one joins it (Servers). While it runs, it
// tells the others that it lives, takes servers in and removes them, and has the keys that all have alike.
package membership
