"""Small sabotages of the code, one at a time: which of them does no test notice?"""
