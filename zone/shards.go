package zone

import (
	"hash/maphash"
	"iter"
	"maps"
)

// shardCount is how many parts a map is cut into. A change copies the parts that it touches and no others, so that
// its cost grows with the number of entries divided by this (docs/adr/0002-sharded-copy-on-write-map.md).
const shardCount = 1024

// shards is an immutable map; edit makes the next one. The zero value is not usable.
type shards[K ~string, V any] struct {
	seed  maphash.Seed
	parts *[shardCount]map[K]V
}

func newShards[K ~string, V any]() shards[K, V] {
	return shards[K, V]{seed: maphash.MakeSeed(), parts: new([shardCount]map[K]V)}
}

func (s shards[K, V]) part(key K) uint64 {
	return maphash.String(s.seed, string(key)) % shardCount
}

func (s shards[K, V]) get(key K) (V, bool) {
	v, ok := s.parts[s.part(key)][key]
	return v, ok
}

// all iterates over every entry, in no order.
func (s shards[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, part := range s.parts {
			for k, v := range part {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

func (s shards[K, V]) edit() *shardsEditor[K, V] {
	parts := *s.parts
	return &shardsEditor[K, V]{shards: shards[K, V]{seed: s.seed, parts: &parts}}
}

// shardsEditor is the next state of a map while it is made. After done it must not be used.
type shardsEditor[K ~string, V any] struct {
	shards[K, V]
	owned   [shardCount]bool // parts that are copies of our own
	changed bool
}

func (e *shardsEditor[K, V]) set(key K, v V) {
	e.own(key)[key] = v
}

func (e *shardsEditor[K, V]) delete(key K) {
	delete(e.own(key), key)
}

func (e *shardsEditor[K, V]) own(key K) map[K]V {
	i := e.part(key)
	if !e.owned[i] {
		e.owned[i] = true
		if e.parts[i] = maps.Clone(e.parts[i]); e.parts[i] == nil {
			e.parts[i] = make(map[K]V)
		}
	}
	e.changed = true
	return e.parts[i]
}

func (e *shardsEditor[K, V]) done() shards[K, V] { return e.shards }
