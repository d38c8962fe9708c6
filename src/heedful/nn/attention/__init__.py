"""Attention: scores, weights, kernels, and the modules that mix positions with them.

Axis letters of the shapes of `heedful.nn`, in addition to those of `heedful.nn.layout`:

| letter | axis |
|---|---|
| T, T_s | all tokens of a batch, packed; those of the source |
| B | sequences (sentences) |
| N | hypotheses in decoding, N / B for each sentence |
| Q, K, S | padded length of the queries; of the keys; of the source, or of any one sequence |
| H, G | heads of the queries; of keys and values, each shared by H / G query heads |
| h | heads, if H or G |
| d, d_model | width of the model |
| d_q, d_k, d_v | width of the queries, keys and values of a head |
| d_p | width of a key prepared for the score (`ScoreFunction.prepare`) |
| d_a | width of the sums in an additive score |
| hd | heads concatenated: their number times their width |
| C | positions that a cache can hold; channels of an image |
| M | hypotheses of a sentence; rows that a `select` keeps |
| n, b, w | in local attention: blocks; queries of a block; keys of its window (`Window`) |
| n | elsewhere: as many vectors as the docstring says (compressed slots, experts, tokens of spans) |
| P | tokens of an unfinished block in the cache of compressed attention, factor - 1; width of a patch |
| b | of a bias: 1 or B |
| k | experts for each token; width of a convolution |
| V | words of the vocabulary |
| H, W, N | of images: height, width, patches |
| m_h | not an axis: the slope of head h (`Alibi`) |
| d_in, d_hidden, d_out, … | width of what the name says |
"""
